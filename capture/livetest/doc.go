// Package livetest is for tests of live capture: a network of their own in a
// namespace, for which no rights are needed, a link in it, a sender of whole frames,
// and frames to send.
package livetest
