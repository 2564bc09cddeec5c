// Package alto serves the last windows in memory as ALTO (RFC 7285), for controllers that speak
// it: groups are PIDs, the room and the delay between them are costs.
//
// It knows ALTO's documents. It must never know how windows got into memory, or who may ask.
package alto
