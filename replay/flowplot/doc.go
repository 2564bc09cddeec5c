// Package flowplot plots a few flows of a simulated run: their rates and delays from the simulator,
// and each flow's bottleneck from the captures. The bottlenecks use only the reflections in the
// captures, decoded and located by the fabric file, and nothing from the truth.
//
// It knows captures, flow traces and SVG. It must never know how a run was simulated.
package flowplot
