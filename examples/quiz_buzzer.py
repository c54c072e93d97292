"""A fair quiz: everybody hears the question at the same instant, and the sequence says who pressed first.

Questions and answers are opaque messages. Until its release an answer is sealed, so nobody can copy it; and what was
pressed first is no matter of whose packet came first at the quizmaster: all have the same sequence.
"""

import asyncio
from random import uniform

import isocast

QUESTIONS, BUZZER = "quiz.questions", "quiz.buzzer"
PLAYERS = {"anna": "Paris", "ben": "Lyon", "carla": "Paris"}


async def main() -> None:
    """Play one round."""
    async with (
        isocast.connect_async(source="london-floor") as market,
        market.listen(topics=[QUESTIONS, BUZZER]) as listening,
    ):
        asked = await market.send(QUESTIONS, "What is the capital of France?", key="1")
        print(f"asked at {asked.source}")
        presses: list[isocast.ReceivedMessage] = []
        players: list[asyncio.Task[isocast.Published]] = []
        async for batch in listening:
            for message in batch.messages():
                if message.topic == QUESTIONS:
                    # Everywhere at this instant, and nowhere before.
                    players = [asyncio.create_task(press(market, name)) for name in PLAYERS]
                else:
                    presses.append(message)
            if len(presses) == len(PLAYERS):
                break
        await asyncio.gather(*players)
    for place, one in enumerate(presses, 1):
        print(f"{place}. {one.key.decode()} says {one.payload.decode()}")
    print(winner(presses), "wins")


async def press(market: isocast.AsyncConnection, name: str) -> isocast.Published:
    """Think, then press the button."""
    await asyncio.sleep(uniform(0.0, 0.05))
    return await market.send(BUZZER, PLAYERS[name], key=name)


def winner(presses: list[isocast.ReceivedMessage]) -> str:
    """The first right answer; every listener comes to the same verdict."""
    return next((one.key.decode() for one in presses if one.payload == b"Paris"), "nobody")


if __name__ == "__main__":
    asyncio.run(main())
