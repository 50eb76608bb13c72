"""What a policy knows of its world beside the last few ticks: z, a few numbers.

    privileged     z = μ(e, force, …)           told by the simulator: a teacher
    convolution    ẑ = φ(the last H frames)     found out from a window of the past
    recurrent      ẑ = φ(all frames so far)     found out with a memory that each tick updates

All three go into the same `body`, action = π(x, z), so that what a teacher learnt can be handed on.

On a robot whose left and right are alike, every history is seen twice, as it is and in the mirror, by the same φ; the
two estimates are kept side by side, and a reflection swaps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from isthmus.core.errors import BadInput
from isthmus.learn.policies.networks import Normalizer, mlp, orthogonal
from isthmus.learn.policies.symmetry import Reflection

Source = Literal["none", "privileged", "convolution", "recurrent"]


@dataclass(frozen=True)
class Context:
    source: Source = "none"
    latent_size: int = 16
    """Numbers in z."""
    hidden: int = 64
    """Width of the encoder μ, or of the memory of a recurrent φ."""
    history: float = 1.0
    """s of the past that a convolution sees."""
    update_ticks: int = 1
    """Ticks from one estimate to the next; a policy may act faster than it learns about its world."""

    def __post_init__(self) -> None:
        if self.latent_size < 1 or self.hidden < 1 or self.update_ticks < 1:
            raise BadInput("a context needs a size, a width and a period of at least 1.")
        if not 0 < self.history < float("inf"):
            raise BadInput(f"a history of {self.history:g} s is not a length of time.")

    @property
    def estimated(self) -> bool:
        """Found out on the robot itself."""
        return self.source in ("convolution", "recurrent")

    def window_frames(self, rate: float) -> int:
        """Ticks that a convolution looks back."""
        return max(2, round(self.history * rate)) if self.source == "convolution" else 1


class PrivilegedEncoder(nn.Module):
    """π(x, μ(p)): the observation x, (n, k), followed by what is told, p."""

    def __init__(self, body: nn.Module, observation_size: int, privileged_size: int, context: Context):
        super().__init__()
        self.body, self.observation_size = body, observation_size
        self.encoder = nn.Sequential(mlp(privileged_size, (context.hidden,), context.latent_size, 1.0), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.body(torch.cat([x[:, : self.observation_size], self.encoder(x[:, self.observation_size :])], dim=1))


class EstimatedContext(nn.Module):
    """π(x, ẑ): the observation x, (n, k), followed by ẑ and, where there is a mirror, the mirror image's ẑ."""

    def __init__(self, body: nn.Module, observation_size: int, context_size: int):
        super().__init__()
        self.body, self.input_size = body, observation_size + context_size

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x[:, : self.input_size])


class ConvolutionalHistory(nn.Module):
    """φ over a window: each frame is embedded, then strided convolutions halve the length of time."""

    def __init__(self, frame: int, frames: int, context: Context, width: int = 32):
        super().__init__()
        self.embed = nn.Sequential(orthogonal(nn.Linear(frame, width), 2**0.5), nn.ELU())
        layers: list[nn.Module] = []
        length = frames
        while length > 4:
            layers += [nn.Conv1d(width, width, 5, stride=2), nn.ELU()]
            length = (length - 5) // 2 + 1
        self.convolve = nn.Sequential(*layers)
        self.out = nn.Linear(width * length, context.latent_size)

    def forward(self, window: Tensor) -> Tensor:
        """(n, frames, frame) -> (n, size)."""
        x = self.convolve(self.embed(window).transpose(1, 2))
        return torch.tanh(self.out(x.flatten(1)))


class RecurrentHistory(nn.Module):
    """φ with a memory h: a gated recurrent unit (Cho et al., 2014).

    r, u = σ(A x + B h),   c = tanh(C x + D r h),   h' = (1 - u) h + u c
    """

    def __init__(self, frame: int, context: Context):
        super().__init__()
        w = context.hidden
        self.width = w
        self.embed = nn.Sequential(orthogonal(nn.Linear(frame, w), 2**0.5), nn.ELU())
        self.inward = nn.Linear(w, 3 * w)
        """A and C."""
        self.gates, self.candidate = nn.Linear(w, 2 * w, bias=False), nn.Linear(w, w, bias=False)
        self.out = nn.Linear(w, context.latent_size)

    def step(self, frame: Tensor, h: Tensor) -> Tensor:
        """The memory after one more frame, (n, frame), (n, width) -> (n, width)."""
        return self._gru_update(self.inward(self.embed(frame)), h)

    def unroll(self, frames: Tensor, h: Tensor, episode_start: Tensor) -> Tensor:
        """The memory after each of many frames, (ticks, n, frame) -> (ticks, n, width); cleared before `fresh` ones."""
        out = []
        for x, new in zip(self.inward(self.embed(frames)), episode_start, strict=True):
            h = self._gru_update(x, h * (1.0 - new))
            out.append(h)
        return torch.stack(out)

    def _gru_update(self, x: Tensor, h: Tensor) -> Tensor:
        w = self.width
        r, u = torch.sigmoid(x[:, : 2 * w] + self.gates(h)).split(w, dim=1)
        c = torch.tanh(x[:, 2 * w :] + self.candidate(r * h))
        return torch.lerp(h, c, u)

    def estimate(self, h: Tensor) -> Tensor:
        return torch.tanh(self.out(h))


class Estimator(nn.Module):
    """ẑ from the past, at its own pace, with all that it remembers between ticks in `memory`."""

    order: Tensor
    signs: Tensor

    def __init__(self, frame: int, rate: float, context: Context, mirror: Reflection | None):
        """`mirror` reflects one frame."""
        super().__init__()
        self.context, self.mirrored = context, mirror is not None
        self.sides = 2 if mirror else 1
        self.frames = context.window_frames(rate)
        self.normalize = Normalizer(frame)
        if mirror is not None:
            self.register_buffer("order", torch.tensor(mirror.order), persistent=False)
            self.register_buffer("signs", torch.tensor(mirror.signs), persistent=False)
        self.net = (
            RecurrentHistory(frame, context)
            if context.source == "recurrent"
            else ConvolutionalHistory(frame, self.frames, context)
        )

    @property
    def output_size(self) -> int:
        return self.sides * self.context.latent_size

    def memory(self, n: int) -> dict[str, Tensor]:
        kept = {}
        if isinstance(self.net, RecurrentHistory):
            kept["hidden"] = torch.zeros(n, self.sides * self.net.width)
        if self.context.update_ticks > 1:
            kept |= {"z": torch.zeros(n, self.output_size), "wait": torch.zeros(n, 1)}
        return kept

    def with_mirror_images(self, frames: Tensor) -> Tensor:
        """Normalised frames, (n, …, frame), and their mirror images after them, (2 n, …, frame)."""
        frames = self.normalize(frames)
        if not self.mirrored:
            return frames
        return torch.cat([frames, frames.index_select(frames.dim() - 1, self.order) * self.signs])

    def sides_as_columns(self, z: Tensor) -> Tensor:
        """From one below the other to side by side, (2 n, k) -> (n, 2 k)."""
        return torch.cat(z.split(z.shape[0] // 2), dim=1) if self.mirrored else z

    def sides_as_rows(self, z: Tensor) -> Tensor:
        """The inverse of `beside`."""
        return torch.cat(z.split(z.shape[1] // 2, dim=1)) if self.mirrored else z

    def forward(self, frames: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The estimate after `frames`, (n, H, frame), the newest last: (n, outputs), and what to remember."""
        kept: dict[str, Tensor] = {}
        if isinstance(self.net, RecurrentHistory):
            h = self.net.step(self.with_mirror_images(frames[:, -1]), self.sides_as_rows(memory["hidden"]))
            z, kept["hidden"] = self.sides_as_columns(self.net.estimate(h)), self.sides_as_columns(h)
        else:
            z = self.sides_as_columns(self.net(self.with_mirror_images(frames[:, -self.frames :])))
        if self.context.update_ticks > 1:
            due = memory["wait"] < 0.5
            z = torch.where(due, z, memory["z"])
            kept = {name: torch.where(due, value, memory[name]) for name, value in kept.items()}
            kept["z"], kept["wait"] = z, torch.where(due, float(self.context.update_ticks - 1), memory["wait"] - 1.0)
        return z, kept
