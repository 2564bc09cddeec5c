/** Options of the panel, as the dashboards' JSON has them. */
export interface Options {
  /** mean: colours by the scale of the mean; mode: by the location that is the mode. */
  kind: "mean" | "mode";
  /** min where low values are tight, max where high ones are. */
  direction: "min" | "max";
  /** Colours of locations as #rrggbb, by name. Only ranks distinguish locations without one. */
  colors?: Record<string, string>;
}
