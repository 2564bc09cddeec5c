// Package report makes one document of what captures say: both matrices, bottlenecks over
// time, the worst cells, what is wrong, and what could not be known. As HTML it is one file
// that needs neither network nor script, to be sent along with a ticket.
//
// It knows how numbers are shown. It must never know where they come from: whoever calls
// it has counted.
package report
