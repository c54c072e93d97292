"""The same door in a program with an event loop: publish while listening."""

import asyncio

import isocast


async def main() -> None:
    """Hear what was just published."""
    async with isocast.connect_async(source="london-floor") as market, market.listen("ECHO") as listening:
        await market.publish({"kind": "mark", "floor": "XLON", "symbol": "ECHO", "id": 1})
        async for batch in listening:
            print(batch.rows()[0]["kind"], "heard as sequence", batch.last_sequence)
            break


if __name__ == "__main__":
    asyncio.run(main())
