import { describe, expect, test } from "vitest";
import { HeightIndex } from "../../src/stream/heights";

/** The same, slowly. */
class Plain {
  first = 0;
  heights = new Map<number, number>();
  setRange(first: number, end: number, estimate: (index: number) => number) {
    this.first = first;
    for (const index of [...this.heights.keys()]) if (index < first || index >= end) this.heights.delete(index);
    for (let index = first; index < end; index += 1) if (!this.heights.has(index)) this.heights.set(index, estimate(index));
  }
  top(index: number) {
    let sum = 0;
    for (const [at, height] of this.heights) if (at < index) sum += height;
    return sum;
  }
  at(offset: number) {
    const indexes = [...this.heights.keys()].sort((a, b) => a - b);
    for (const index of indexes) if (this.top(index) + (this.heights.get(index) ?? 0) > offset) return Math.max(index, this.first);
    return indexes.at(-1) ?? this.first;
  }
}

describe("heights of a long list", () => {
  test("agree with a plain sum through appends, measurements and drops", () => {
    const heights = new HeightIndex();
    const plain = new Plain();
    let seed = 7;
    const random = (below: number) => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return seed % below;
    };
    let first = 0;
    let end = 0;
    for (let round = 0; round < 300; round += 1) {
      end += random(30);
      first = Math.min(first + random(20), end);
      const estimate = (index: number) => 20 + (index % 7);
      heights.setRange(first, end, estimate);
      plain.setRange(first, end, estimate);
      for (let times = random(5); times > 0 && end > first; times -= 1) {
        const index = first + random(end - first);
        const height = 1 + random(200);
        heights.set(index, height);
        plain.heights.set(index, height);
      }
      const probe = first + random(end - first + 1);
      expect(heights.top(probe)).toBe(plain.top(probe));
      expect(heights.total).toBe(plain.top(Infinity));
      if (end > first) {
        const offset = random(Math.max(1, heights.total));
        expect(heights.at(offset)).toBe(plain.at(offset));
      }
    }
  });

  test("positions outside give the first and the last item", () => {
    const heights = new HeightIndex();
    heights.setRange(5, 10, () => 10);
    expect([heights.at(-50), heights.at(0), heights.at(49), heights.at(50), heights.at(1e9)]).toEqual([5, 5, 9, 9, 9]);
  });

  test("a list that starts again forgets what it knew", () => {
    const heights = new HeightIndex();
    heights.setRange(0, 100, () => 10);
    heights.setRange(0, 3, () => 7);
    expect([heights.total, heights.end]).toEqual([21, 3]);
    heights.setRange(50, 52, () => 5);
    expect([heights.first, heights.total, heights.top(51)]).toEqual([50, 10, 5]);
  });

  test("a dropped item cannot be measured any more", () => {
    const heights = new HeightIndex();
    heights.setRange(0, 10, () => 10);
    heights.setRange(4, 10, () => 10);
    expect(heights.set(2, 500)).toBe(0);
    expect(heights.total).toBe(60);
  });

  test("room is given back while a hundred thousand items pass through", () => {
    const heights = new HeightIndex();
    for (let end = 1000; end <= 300_000; end += 1000) heights.setRange(Math.max(0, end - 10_000), end, () => 30);
    expect(heights.total).toBe(300_000);
    expect((heights as unknown as { heights: Float64Array }).heights.length).toBeLessThanOrEqual(65_536);
    expect(heights.at(150_000)).toBe(295_000);
  });
});
