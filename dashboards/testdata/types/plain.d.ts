// Grafana's types as JSON sees them: enums are their values, and what an override sets
// stands alone.
export type Plain<T> = T extends string
  ? `${T}`
  : T extends boolean | null | undefined
    ? T
    : T extends number
      ? number extends T
        ? number
        : `${T}` extends `${infer N extends number}`
          ? N
          : never
      : T extends Array<infer E>
        ? Array<Plain<E>>
        : T extends object
          ? { [K in keyof T]: Plain<T[K]> }
          : T;

export type Part<T> = T extends Array<infer E> ? Array<E> : T extends object ? { [K in keyof T]?: Part<T[K]> } : T;
