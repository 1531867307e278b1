package idempotency_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/overbook/overbook/sut/idempotency"
)

func TestFingerprint(t *testing.T) {
	of := func(operation, target, body string) string {
		t.Helper()
		f, err := idempotency.Fingerprint(operation, target, []byte(body))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return f
	}
	same := [][2]string{
		{``, `{}`}, {"  \n", ` { } `}, {`{"a":1,"b":[1,2]}`, "{\"b\": [1, 2],\n\"a\": 1}"}, {`{"a":{"x":1,"y":2}}`, `{"a":{"y":2,"x":1}}`}, {`{"a":"é"}`, `{"a":"\u00e9"}`},
	}
	for _, s := range same {
		if of("book", "1", s[0]) != of("book", "1", s[1]) {
			t.Errorf("%s and %s are the same request", s[0], s[1])
		}
	}
	all := map[string]string{}
	for _, other := range [][3]string{
		{"book", "1", ``},
		{"book", "2", ``},
		{"cancel", "1", ``},
		{"book", "1", `{"a":1}`},
		{"book", "1", `{"a":2}`},
		{"book", "1", `{"a":1e400}`},
		{"book", "1", `{"a":1e401}`},
		{"book", "1", `{"a":"1"}`},
		{"book", "1", `{"a":null}`},
		{"book", "1", `{"a":[1,2]}`},
		{"book", "1", `{"a":[2,1]}`},
		{"book 1", "", ``},
		{"book", `1" "`, ``},
	} {
		f := of(other[0], other[1], other[2])
		if len(f) != 64 || strings.ToLower(f) != f {
			t.Errorf("fingerprint %q", f)
		}
		if before, known := all[f]; known {
			t.Errorf("%v has the fingerprint of %s", other, before)
		}
		all[f] = strings.Join(other[:], "|")
	}
	for _, bad := range []string{`{`, `{}{}`, `{} x`, `nonsense`, `{"a":01}`} {
		if f, err := idempotency.Fingerprint("book", "1", []byte(bad)); err == nil {
			t.Errorf("%s has the fingerprint %s", bad, f)
		}
	}
}

// TestFingerprintIsOfTheContent: the order of members and white space never matter.
func TestFingerprintIsOfTheContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.SliceOfNDistinct(rapid.StringMatching(`"[a-z]{1,5}":("[a-z ]{0,5}"|[1-9][0-9]{0,2}|\[1,2\]|\{"x":null\})`), 1, 6, func(s string) string { return strings.SplitN(s, ":", 2)[0] }).Draw(t, "members")
		other := rapid.Permutation(members).Draw(t, "order")
		gap := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "gap")
		a, err := idempotency.Fingerprint("o", "t", []byte("{"+strings.Join(members, ",")+"}"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := idempotency.Fingerprint("o", "t", []byte(gap+"{"+gap+strings.Join(other, gap+","+gap)+gap+"}"))
		if err != nil || a != b {
			t.Fatalf("%s, %s: %v", a, b, err)
		}
	})
}
