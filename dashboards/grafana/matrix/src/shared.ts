// The state that both matrices of a dashboard share: they are instances of one module.

import type { Selection } from "./data";

/** The cell under the pointer, by names, since the matrices may have different axes. */
export interface Pointer {
  src: string;
  dst: string;
}

export interface View extends Selection {
  pointer: Pointer | null;
  /** location whose cells are marked, empty for none */
  highlight: string;
}

/** Shared is a value with several readers. Each change calls the listeners once, in order. */
export class Shared<T extends object> {
  private listeners = new Set<() => void>();
  constructor(private value: T) {}

  get = (): T => this.value;

  set(change: Partial<T>) {
    if (Object.entries(change).every(([key, value]) => this.value[key as keyof T] === value)) return;
    this.value = { ...this.value, ...change };
    for (const listener of this.listeners) listener();
  }

  subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };
}

export const view = new Shared<View>({ congested: false, folded: false, inside: null, pointer: null, highlight: "" });
