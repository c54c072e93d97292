"""A trader: buys at a limit, waits until every trade is final, and says what it cost.

Where the gateway is and who trades comes from the environment: ISOCAST_TRADER_URL, ISOCAST_TRADER_CA (the market's CA)
and ISOCAST_TRADER_TOKEN_FILE (a file of mode 0600 with an API token).
"""

import asyncio
import os
from pathlib import Path

import isocast


async def main(token: str) -> None:
    """Buy 100 ISO at 10.05 or better, and cancel what is left after ten seconds."""
    url, ca = os.environ["ISOCAST_TRADER_URL"], os.environ.get("ISOCAST_TRADER_CA")
    async with isocast.Trader(url, token=token, ca=ca) as trader:
        try:
            order = await trader.buy("ISO", 100, "10.05")
        except isocast.TraderRefusedError as refused:
            print(f"refused ({refused.reason}): {refused}")
            return
        try:
            await order.filled(timeout_s=10)
        except TimeoutError:
            await trader.cancel(order)
        report = await order.confirmed()
        print(f"{report.status}: {report.filled} of {report.quantity} at {report.average_price}")
        for balance in await trader.balances():
            print(f"{balance.asset}: {balance.available} available, {balance.reserved} reserved")


if __name__ == "__main__":
    asyncio.run(main(Path(os.environ["ISOCAST_TRADER_TOKEN_FILE"]).read_text(encoding="ascii").strip()))
