// Package pattern finds periods in the load of a network over time: the steps of a training
// job, and how long it rests between them. It also tells bursts that are shorter than a window
// from steady load, by the distribution of the values in it.
//
// A period is what the autocorrelation shows that aperiodic traffic does not: a peak away
// from lag 0 that is too high for chance, given how long the traffic remembers, and one
// again at twice the lag. Where that is not so there is no period, rather than a guess.
//
// Of a series that is too long to be known throughout, parts do: what repeats is the same in
// all of them.
//
// The package knows series of numbers, one for each window, all windows of equal length,
// and answers in windows. It must never know cells, signals or where windows come from. Its
// functions keep nothing of what they are given, and are safe for concurrent use.
package pattern
