package credential

import "fmt"

// Reason is why a peer is nobody.
type Reason uint8

// The reasons.
const (
	NoCredential Reason = iota
	UnknownToken
	ExpiredToken
	ForeignCertificate // not of our authority, or not for clients
	ExpiredCertificate // or not valid yet
	NamelessCertificate
	NoRole // a certificate that the file of clients does not list

	// NumReasons bounds every Reason.
	NumReasons
)

var reasonNames = [NumReasons]string{
	"no_credential", "unknown_token", "expired_token", "foreign_certificate", "expired_certificate", "nameless_certificate", "no_role",
}

// String is the reason as metrics and logs name it, in snake case.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason_%d", uint8(r))
}

// Error is why a peer was refused. What it says is for logs, not for the peer.
type Error struct {
	Reason Reason
	Name   string // as far as it is known
	Cause  error  // nil for none
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("refuse peer: %s: %v", e.Reason, e.Cause)
	}
	return fmt.Sprintf("refuse peer: %s", e.Reason)
}

// Unwrap is what was wrong.
func (e *Error) Unwrap() error { return e.Cause }
