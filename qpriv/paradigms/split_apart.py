"""`SplitApart`: the parties of a split as separate objects, and the settings they share."""

from qpriv.errors import ConfigError
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.split.layers import Segment, Tail

from .base import Run
from .recipe import LoraRecipe
from .split_client import SplitClient
from .split_parties import SplitParties
from .split_server import Answers, BodyServer, Server, SplitServer


class SplitApart(SplitParties):
    """Creates the server and the clients of a split, which communicate only by messages."""

    exchanges = "layers"

    def server(
        self, model: VisionLanguageModel, recipe: LoraRecipe, steps: int, *, seed: int
    ) -> Server:
        """Return the server with its layers of the model.

        If labels cross, the server also owns the final norm and the LM head.

        Args:
            model: The whole model, with the server's adapter.
            recipe: Training recipe of the adapters.
            steps: Optimiser steps of the whole run.
            seed: Seed of the run.
        """
        given = recipe, steps, self.codec, self.bucket, self.guards, seed
        if self.labels_cross:
            return SplitServer(Tail(model, *self.cuts), *given)
        return BodyServer(Segment(model, *self.cuts), *given)

    def client(
        self, run: Run, number: int, server: Answers, steps: int, *, secret: int | None = None
    ) -> SplitClient:
        """Return a client with its layers of the model.

        Args:
            run: Model (with this client's adapter), policy and recipe of the run.
            number: The client's number.
            server: The server, or a connection to it.
            steps: Optimiser steps of the whole run.
            secret: Seed of the random numbers of the client's stages; None draws one.
        """
        return SplitClient(
            run.model,
            self.cuts,
            server,
            run.policy,
            run.encode,
            run.recipe,
            steps,
            self.codec,
            self.bucket,
            self.guards.alone(number),
            number,
            secret,
        )

    def become(self, model: VisionLanguageModel, client: int | None) -> None:
        """Keep only the server's adapter, plus this client's if given.

        Args:
            model: The model of a process that runs one party.
            client: The client; None for the server.
        """
        self._parties.keep(model, client)

    def terms(self) -> dict[str, object]:
        """Return the settings that parties must share: cuts, codec, bucket and defence."""
        return {
            "cuts": self.cuts,
            "codec": self.codec.name if self.codec else "as computed",
            "bucket": self.bucket,
            "defence": self.channel().defence_label,
        }

    def check_divisible(self) -> None:
        """Check that the parties can run as separate processes.

        Raises:
            ConfigError: If clients step together, or hand one adapter over.
        """
        if self.schedule == "together":
            raise ConfigError(
                "parties of their own take turns: clients that step together do so in one process",
                where="--model.paradigm.schedule",
                remedy="choose in_turn",
            )
        if self.num_clients > 1 and not self.private:
            raise ConfigError(
                "an adapter that is handed over would pass through the server",
                where="--model.paradigm.client_adapters",
                remedy="choose private",
            )

    def schedule_steps(self, rounds: int, asked: int | None) -> int:
        """Return the optimiser steps that the schedule spans: one per round.

        Raises:
            ConfigError: If ``asked`` is another number.
        """
        if asked not in (None, rounds):
            raise ConfigError(
                f"steps is {asked}, rounds is {rounds}",
                where="--steps",
                remedy="leave it out: in a split every client takes one step a round",
            )
        return rounds
