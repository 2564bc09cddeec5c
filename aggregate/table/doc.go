// Package table holds rows in memory, bounded: what a replay came to, what a report shows
// over time, and the last closed windows for clients that ask often or wait for the next.
//
// It knows closed windows and their revisions, and takes the definitions of mode and state
// from package aggregate. It must never know who asks, names of groups and locations, or
// where windows come from or are stored.
package table
