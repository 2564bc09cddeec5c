// Package report writes one document about captures: both matrices, bottlenecks over time, the
// worst cells, faults, and gaps in knowledge. The HTML is a single file that needs neither network
// nor script and can be attached to a ticket.
//
// It knows how numbers are shown. It must never know where they come from: the caller counts.
package report
