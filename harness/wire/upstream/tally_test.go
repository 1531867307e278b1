package upstream

import "testing"

func TestFieldOf(t *testing.T) {
	for _, tc := range []struct{ body, want string }{
		{`{"seat":"A'1\\"}`, `A'1\`}, {`{"seat":7}`, ""}, {`{"other":"x"}`, ""}, {`{"seat":{"seat":"x"}}`, ""}, {`["seat"]`, ""}, {`{"seat":"A`, ""}, {``, ""},
	} {
		if got := FieldOf([]byte(tc.body), "seat"); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.body, got, tc.want)
		}
	}
}
