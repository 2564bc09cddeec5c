package api

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
)

// TestGzipStream: parts are deflated separately, and form a stream in any order; a reader gets
// each part as soon as it is sent, and the checksum at the end is right.
func TestGzipStream(t *testing.T) {
	var by packer
	rng := rand.New(rand.NewPCG(1, 2))
	var parts [][]byte
	for _, size := range []int{0, 1, 3, 64 << 10, 1 << 20, 100_001} {
		part := make([]byte, size)
		for i := range part {
			part[i] = "0123456789{}:\","[rng.IntN(15)]
		}
		parts = append(parts, part)
	}
	var list []*packed
	for _, part := range parts {
		p, err := by.pack(part)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	for range 5 {
		from, to := io.Pipe()
		turn := make(chan int, 20) // a reader may not read the end of a part until later
		go func() {
			var stream gzipStream
			_, _ = to.Write(gzipHead)
			for i := range turn {
				stream.add(list[i])
				_, _ = to.Write(list[i].blocks)
			}
			_, _ = to.Write(stream.end())
			_ = to.Close()
		}()
		z, err := gzip.NewReader(from)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			i := rng.IntN(len(parts))
			turn <- i
			got := make([]byte, len(parts[i]))
			if _, err := io.ReadFull(z, got); err != nil || !bytes.Equal(got, parts[i]) {
				t.Fatalf("part %d of %d bytes: %v, or others than were sent", i, len(parts[i]), err)
			}
		}
		close(turn)
		if rest, err := io.ReadAll(z); err != nil || len(rest) > 0 {
			t.Errorf("%d bytes after the last part: %v", len(rest), err)
		}
	}
}

// TestTakesGzip: an encoding that the client refuses is not used.
func TestTakesGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "identity": false, "*": false, "br, zstd": false, "gzipped": false, "gzip;q=0": false, "gzip; q=0.0": false, "gzip;q=x": false,
		"gzip": true, "deflate, GZIP": true, "gzip;q=0.5, br": true, "gzip; q=1": true, "x-gzip": true, "gzip, deflate, br, zstd": true,
	} {
		if got := takesGzip(http.Header{"Accept-Encoding": {header}}); got != want {
			t.Errorf("%q takes gzip: %v", header, got)
		}
	}
	if takesGzip(http.Header{}) {
		t.Error("who says nothing takes gzip")
	}
	if !takesGzip(http.Header{"Accept-Encoding": {"br", "gzip"}}) {
		t.Error("the second of two lines is passed over")
	}
}
