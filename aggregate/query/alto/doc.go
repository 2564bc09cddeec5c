// Package alto serves the last windows in memory as ALTO (RFC 7285), for controllers that speak
// it: groups are PIDs, the available bandwidth and the delay between them are costs.
//
// It knows ALTO's documents. It must never know how windows got into memory, or which clients may
// ask.
package alto
