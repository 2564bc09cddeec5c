// Package recent is the memory of recent windows: what the last closed windows of one
// resolution came to, for those who ask often or wait for the next one.
//
// It knows closed windows and their revisions, and takes the definitions of mode and state
// from package aggregate. It must never know who asks, names of groups and locations, or
// where windows are stored.
package recent
