package replay

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// TestPipeHandsOverEveryByte writes pieces of odd sizes and reads pieces of other sizes.
func TestPipeHandsOverEveryByte(t *testing.T) {
	want := make([]byte, 5*pipeBuffers*pipeBufferBytes/2+13)
	for i := range want {
		want[i] = byte(i * 7)
	}
	p := newPipe()
	go func() {
		for b := want; len(b) > 0; {
			n := min(len(b), 100_003)
			if _, err := p.Write(b[:n]); err != nil {
				p.closeWrite(err)
				return
			}
			b = b[n:]
		}
		p.closeWrite(nil)
	}()
	got, err := io.ReadAll(p)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes read of %d: %v", len(got), len(want), err)
	}
}

func TestPipeEndsOnBothSides(t *testing.T) {
	broken := errors.New("broken")
	p := newPipe()
	p.closeRead(broken)
	if _, err := p.Write(make([]byte, (pipeBuffers+1)*pipeBufferBytes)); !errors.Is(err, broken) {
		t.Errorf("writer's error %v, want the reader's", err)
	}
	p = newPipe()
	p.closeWrite(broken)
	if _, err := io.ReadAll(p); !errors.Is(err, broken) {
		t.Errorf("reader's error %v, want the writer's", err)
	}
}
