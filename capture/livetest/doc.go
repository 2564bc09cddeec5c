// Package livetest helps tests of live capture: an unprivileged network namespace, a link in it, a
// sender of whole frames, and frames to send. It knows Linux networking. It must never know what is
// tested.
package livetest
