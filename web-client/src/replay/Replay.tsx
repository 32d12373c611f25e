// The session again, from its beginning, at any speed.

import { useEffect, useMemo, useState } from "preact/hooks";
import { t } from "../i18n";
import type { SessionConnection } from "../net/connection";
import type { StreamSource } from "../stream/source";
import { Stream } from "../stream/Stream";
import { ScreenPool } from "../terminal/pool";
import { useApp } from "../ui/context";
import { dateAndTime, timeOfDay } from "../ui/format";
import { Icon } from "../ui/Icon";
import { messageOf } from "../ui/message";
import { Player, SPEEDS } from "./player";
import { Recording } from "./recording";

export function Replay({ connection }: { connection: SessionConnection }) {
  const { api } = useApp();
  const recording = useMemo(() => new Recording(api, connection.session), [api, connection.session]);
  const player = useMemo(() => new Player(recording), [recording]);
  const [progress, setProgress] = useState<{ loaded: number; head: number } | null>({ loaded: 0, head: 0 });
  const [problem, setProblem] = useState<string | null>(null);
  const [round, setRound] = useState(0);

  useEffect(() => {
    const stopping = new AbortController();
    setProblem(null);
    recording
      .load((loaded, head) => setProgress({ loaded, head }), stopping.signal)
      .then(() => setProgress(null))
      .catch((error: unknown) => {
        if (stopping.signal.aborted) return;
        setProblem(messageOf(error));
        setProgress(null);
      });
    return () => stopping.abort();
  }, [recording, round]);
  useEffect(() => () => player.close(), [player]);

  if (progress !== null && recording.length === 0) return <p class="center">{t().app.loading}</p>;
  return (
    <div class="replay">
      {problem !== null && (
        <p class="problem" role="alert">
          {t().app.failed(problem)}{" "}
          <button onClick={() => setRound(round + 1)}>{t().app.retry}</button>
        </p>
      )}
      {recording.isCut && <p class="banner">{t().replay.cut(recording.length)}</p>}
      <PlayedStream player={player} connection={connection} />
      <Controls player={player} recording={recording} progress={progress} newer={connection.view.head - recording.head} onLoad={() => setRound(round + 1)} />
    </div>
  );
}

function PlayedStream({ player, connection }: { player: Player; connection: SessionConnection }) {
  const generation = player.generation.value;
  const source = useMemo<StreamSource>(
    () => ({
      view: player.view,
      tick: player.tick,
      now: () => Date.parse(player.at ?? "") || 0,
      screens: new ScreenPool(),
      sizes: player.sizes,
      readOutput: (read) => connection.readOutput(read),
      live: null,
      unfolded: new Set(),
    }),
    [player, generation, connection],
  );
  useEffect(() => () => source.screens.close(), [source]);
  return <Stream source={source} />;
}

interface ControlsProps {
  player: Player;
  recording: Recording;
  progress: { loaded: number; head: number } | null;
  /** How many entries have come since the recording was fetched. */
  newer: number;
  onLoad(): void;
}

function Controls({ player, recording, progress, newer, onLoad }: ControlsProps) {
  const isPlaying = player.isPlaying.value;
  return (
    <div class="replay-controls" role="group" aria-label={t().replay.controls}>
      <input
        type="range"
        min={0}
        max={Math.max(1, Math.ceil(recording.timeline.duration))}
        step={Math.max(1, Math.round(recording.timeline.duration / 2000))}
        value={player.position.value}
        aria-label={t().replay.position}
        aria-valuetext={t().replay.at(player.count.value, recording.length, timeOfDay(player.at))}
        onInput={(event) => player.seek(event.currentTarget.valueAsNumber)}
      />
      <div class="replay-row">
        <button aria-label={t().replay.back} title={t().replay.back} disabled={player.count.value === 0} onClick={() => player.stepBack()}>
          <Icon name="back" />
        </button>
        <button class="primary" onClick={() => (isPlaying ? player.pause() : player.play())}>
          {isPlaying ? t().replay.pause : t().replay.play}
        </button>
        <button aria-label={t().replay.forward} title={t().replay.forward} disabled={player.count.value >= recording.length} onClick={() => player.stepForward()}>
          <Icon name="next" />
        </button>
        <select aria-label={t().replay.speed} value={String(player.speed.value)} onChange={(event) => (player.speed.value = Number(event.currentTarget.value))}>
          {SPEEDS.map((speed) => (
            <option key={speed} value={String(speed)}>
              {speed}×
            </option>
          ))}
        </select>
      </div>
      <p class="small quiet replay-at">
        {player.isSeeking.value ? t().app.loading : t().replay.at(player.count.value, recording.length, dateAndTime(player.at))}
        {progress !== null && ` ${t().replay.loading(progress.loaded, progress.head)}`}
      </p>
      {progress === null && newer > 0 && !recording.isCut && (
        <button class="plain small" onClick={onLoad}>
          {t().replay.newer(newer)}
        </button>
      )}
    </div>
  );
}
