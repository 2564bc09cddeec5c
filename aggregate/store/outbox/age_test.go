package outbox

import (
	"testing"
	"time"
)

// TestOldest: the age of waiting records is known as records come and go, and after a restart.
func TestOldest(t *testing.T) {
	fsys := newFakeFS()
	now := time.Unix(1e9, 0)
	open := func() *Log {
		l, err := Open(Options{
			Dir: testDir, Classes: []Class{{Name: "fine"}, {Name: "notes", Exempt: true}}, MaxBytes: 1 << 20,
			FS: fsys, Now: func() time.Time { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	add := func(class int) {
		t.Helper()
		if err := l.Append(Record{Class: class, Weight: 1, Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	ack := func() {
		t.Helper()
		e, ok, err := l.Next(nil)
		if err != nil || !ok {
			t.Fatal("nothing to send", err)
		}
		l.Ack(&e)
	}
	want := func(age time.Duration, waits bool) {
		t.Helper()
		at := l.Stats().Oldest
		if at.IsZero() == waits || waits && now.Sub(at) != age {
			t.Errorf("oldest came at %v, now it is %v; want age %v, waiting %t", at, now, age, waits)
		}
	}
	add(1)
	want(0, false) // exempt
	ack()
	add(0)
	now = now.Add(time.Minute)
	add(0)
	want(time.Minute, true)
	ack()
	want(0, true)
	now = now.Add(10 * time.Second)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open()
	want(10*time.Second, true)
	ack()
	want(0, false)
	now = now.Add(time.Hour)
	add(0)
	want(0, true)
}

// TestAgesBounded: with many records the age is exact to a few percent.
func TestAgesBounded(t *testing.T) {
	var a ages
	begin := time.Unix(1e9, 0)
	const records = 100_000
	for i := range records {
		a.note(uint64(i+1), begin.Add(time.Duration(i)*time.Second))
		if len(a.marks) > maxMarks {
			t.Fatalf("%d marks", len(a.marks))
		}
	}
	for _, acked := range []int{0, 1, 50_000, 99_000, records - 1} {
		came := begin.Add(time.Duration(acked) * time.Second)
		at, ok := a.since(uint64(acked))
		if early := came.Sub(at); !ok || early < 0 || early > records/20*time.Second {
			t.Errorf("after %d the oldest came at %v, known as %v before", acked, came, early)
		}
		a.forget(uint64(acked))
		if again, _ := a.since(uint64(acked)); !again.Equal(at) {
			t.Errorf("after %d forgetting changed %v to %v", acked, at, again)
		}
	}
}
