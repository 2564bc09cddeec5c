import { PanelPlugin } from "@grafana/data";
import { MatrixPanel } from "./panel";
import type { Options } from "./options";

export const plugin = new PanelPlugin<Options>(MatrixPanel).useFieldConfig().setPanelOptions((builder) => {
  builder.addRadio({
    path: "kind", name: "Show", defaultValue: "mean",
    settings: { options: [{ value: "mean", label: "Mean" }, { value: "mode", label: "Mode of the bottleneck" }] },
  });
  builder.addRadio({
    path: "direction", name: "Worse are", defaultValue: "min",
    settings: { options: [{ value: "min", label: "Low values" }, { value: "max", label: "High values" }] },
  });
});
