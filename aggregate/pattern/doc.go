// Package pattern finds periods in the load of a network over time: the steps of a training job,
// and the idle time between them. It also distinguishes bursts that are shorter than a window from
// steady load, by the distribution of the values in it.
//
// A period shows as two peaks in the autocorrelation: one away from lag 0 that is too high for
// chance, given how long the traffic is correlated, and another one at twice the lag. Without both,
// the package reports no period rather than a guess.
//
// A few known parts of a long series are enough, since all of them have its period.
//
// It knows series of numbers, one for each window, all windows of equal length, and returns times
// in windows. It must never know cells, signals or where windows come from. Its functions do not
// keep their arguments, and are safe for concurrent use.
package pattern
