// Package flowplot draws what a few flows of a simulated run did: their rates and
// delays, as the simulator knows them, and the bottleneck of each, as csigscope sees
// it. The bottlenecks come from reflections in the captures, read through the real
// decoder and located in the fabric file: nothing of the truth has a part in them.
//
// It knows captures, flow traces and SVG. It must never know how a run was simulated.
package flowplot
