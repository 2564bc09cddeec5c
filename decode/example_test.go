package decode_test

import (
	"fmt"

	"github.com/csigscope/csigscope/decode"
)

// A frame of a tap that receives mirror sessions.
func ExampleUnwrapper() {
	u := decode.NewUnwrapper(decode.Mirrors{ERSPAN: true})
	var f decode.Frame // as captured
	switch inner, session, m := u.Unwrap(&f); m {
	case decode.MirrorNone:
		fmt.Println("an ordinary frame of", len(f.Data), "bytes")
	case decode.MirrorOK:
		fmt.Println("session", session.ID, "of", session.Source, "with", len(inner.Data), "bytes")
	default:
		fmt.Println("count it:", m)
	}
	// Output: an ordinary frame of 0 bytes
}
