// Package daemon is what a long-running command owes the machine that it runs on: to say
// whether it is alive and ready, to whoever asks over HTTP and to systemd, and to give up
// what it does not need.
//
// It knows processes. It must never know what the command does: checks are handed in.
package daemon
