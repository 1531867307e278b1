package tickets

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Whatever is wrong with a call, nothing is stored of it.
func TestBadCallsChangeNothing(t *testing.T) {
	s := newShop(t, 2)
	hold := s.held("member-1", "A-1")
	claim, charge, holdPath := "/tickets/shows/1/holds", "/tickets/holds/"+hold+"/charges", "/tickets/holds/"+hold
	show := func(edit string) string {
		doc := `{"show_id":2,"on_sale_at":"2026-12-24T08:00:00Z","price":4500,"currency":"EUR","seats":["A-1"]}`
		old, with, _ := strings.Cut(edit, " => ")
		return strings.Replace(doc, old, with, 1)
	}
	huge := `{"seat":"` + strings.Repeat("x", 1<<20) + `"}`
	crowd := `"` + strings.Join(make([]string, 2001), `","`) + `"`
	before := s.rows()
	for _, c := range []struct {
		method, path string
		call         call
		want         string
	}{
		{"POST", claim, call{body: `{"seat":"A-2"}`}, "401 unauthorized"},
		{"POST", claim, call{who: "student-1", body: `{"seat":"A-2"}`}, "401 unauthorized"},
		{"POST", claim, call{who: "member-2.1", body: `{"seat":"A-2"}`}, "401 token-expired"},
		{"POST", claim, call{who: "staff-1", body: `{"seat":"A-2"}`}, "403 forbidden"},
		{"POST", "/tickets/shows/9/holds", call{body: `{`}, "401 unauthorized"}, // before anything is looked up
		{"POST", claim, call{who: "member-2"}, "400 bad-request"},
		{"POST", claim, call{who: "member-2", body: `{"seat":`}, "400 bad-request"},
		{"POST", claim, call{who: "member-2", body: `["A-2"]`}, "400 bad-request"},
		{"POST", claim, call{who: "member-2", body: `{"seat":"A-2"}{}`}, "400 bad-request"},
		{"POST", claim, call{who: "member-2", body: `{"seat":2}`}, "400 bad-request"},
		{"POST", claim, call{who: "member-2", body: `{"seat":"A-2","price":1}`}, "400 bad-request"},
		{"POST", claim, call{who: "member-2", body: `{"seat":""}`}, "400 bad-request"},
		{"POST", claim, call{who: "member-2", body: `{"seat":"\u0000"}`}, "400 bad-request"},
		{"POST", claim, call{who: "member-2", body: `{"seat":"A-2","best_available":true}`}, "400 bad-request"},
		{"POST", claim, call{who: "member-2", body: `{"best_available":false}`}, "400 bad-request"},
		{"POST", claim, call{who: "member-2", body: huge}, "413 too-large"},
		{"POST", claim, call{who: "member-2", body: `{"seat":"A-2"}`, contentType: "text/plain"}, "415 unsupported-media-type"},
		{"POST", claim, call{who: "member-2", body: `seat=A-2`, contentType: "application/x-www-form-urlencoded"}, "415 unsupported-media-type"},
		{"PUT", claim, call{who: "member-2"}, "405 method-not-allowed"},
		{"POST", "/tickets/shows/1/seats/A-2", call{who: "member-2"}, "404 not-found"},
		{"POST", charge, call{who: "member-1"}, "400 bad-request"},
		{"POST", charge, call{who: "member-1", body: `{"card":""}`}, "400 bad-request"},
		{"POST", charge, call{who: "member-1", body: `{"card":"a b"}`}, "400 bad-request"},
		{"POST", charge, call{who: "member-1", body: `{"card":"c","amount":1}`}, "400 bad-request"},
		{"POST", charge, call{who: "member-1", body: huge}, "413 too-large"},
		{"POST", charge, call{who: "member-1", body: `{"card":"c"}`, contentType: "text/json"}, "415 unsupported-media-type"},
		{"POST", charge, call{who: "staff-1", body: `{"card":"c"}`}, "403 forbidden"},
		{"DELETE", holdPath, call{}, "401 unauthorized"},
		{"DELETE", holdPath, call{who: "staff-1"}, "403 forbidden"},
		{"DELETE", holdPath, call{who: "member-1", body: `{"why":1}`}, "400 bad-request"},
		{"DELETE", holdPath, call{who: "member-2"}, "404 unknown-hold"},
		{"GET", "/tickets/orders/" + hold, call{}, "401 unauthorized"},
		{"GET", "/tickets/orders/" + hold, call{who: "member-2"}, "404 unknown-order"},
		{"GET", "/tickets/orders/x", call{who: "member-1"}, "404 unknown-order"},
		{"GET", "/tickets/orders/00000000-0000-0000-0000-000000000001", call{who: "staff-1"}, "404 unknown-order"},
		{"GET", "/tickets/shows/1/seats", call{}, "401 unauthorized"},
		{"GET", "/tickets/shows/2/seats", call{who: "member-1"}, "404 unknown-show"},
		{"GET", "/tickets/shows/99999999999999999999/seats", call{who: "member-1"}, "404 unknown-show"},
		{"POST", "/tickets/shows", call{who: "member-1", body: show("")}, "403 forbidden"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`"show_id":2 => "show_id":1`)}, "409 show-exists"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`"show_id":2 => "show_id":0`)}, "400 bad-request"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`2026-12-24T08 => 24 December`)}, "400 bad-request"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`4500 => 0`)}, "400 bad-request"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`4500 => 45.5`)}, "400 bad-request"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`4500 => 100000001`)}, "400 bad-request"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`EUR => euro`)}, "400 bad-request"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`"EUR" => "EUR","policy":"keep"`)}, "400 bad-request"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`"A-1" => `)}, "400 bad-request"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`"A-1" => "A-1","A-1"`)}, "400 bad-request"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`"A-1" => ` + crowd)}, "400 bad-request"},
		{"POST", "/tickets/shows", call{who: "staff-1", body: show(`"A-1" => "A 1"`)}, "400 bad-request"},
	} {
		if a := s.send(c.method, c.path, c.call); a.kind() != c.want {
			t.Errorf("%s %s as %q with %.60q: %d %s, want %s", c.method, c.path, c.call.who, c.call.body, a.status, a.body, c.want)
		}
	}
	if after := s.rows(); after != before {
		t.Errorf("bad calls changed something:\n%s\n%s", before, after)
	}
}

func TestBadCallbacksChangeNothing(t *testing.T) {
	s := newShop(t, 1)
	hold, charge := s.inFlight("member-1", "A-1")
	good := event("e1", eventCaptured, "pay_1", charge, hold, 4500)
	edit := func(old, with string) string { return strings.Replace(good, old, with, 1) }
	signed := func(body string) call { return call{body: body, signature: s.signature(body, 0)} }
	shifted := func(by time.Duration) call { return call{body: good, signature: s.signature(good, by)} }
	window := s.cfg.CallbackWindow
	right := s.signature(good, 0)
	before := s.rows()
	for what, c := range map[string]struct {
		call call
		want string
	}{
		"no signature":               {call{body: good}, "401 signature-invalid"},
		"another secret":             {call{body: good, signature: signatureBy("another-secret", good, s.clock.Now())}, "401 signature-invalid"},
		"another body":               {call{body: edit("4500", "1"), signature: right}, "401 signature-invalid"},
		"a truncated body":           {call{body: good[:len(good)-1], signature: right}, "401 signature-invalid"},
		"a longer body":              {call{body: good + " ", signature: right}, "401 signature-invalid"},
		"no body":                    {call{signature: right}, "401 signature-invalid"},
		"another time than signed":   {call{body: good, signature: fmt.Sprintf("t=%d,%s", s.clock.Now().Unix()+1, right[strings.Index(right, "v1="):])}, "401 signature-invalid"},
		"a truncated signature":      {call{body: good, signature: right[:len(right)-2]}, "401 signature-invalid"},
		"a prefix of the signature":  {call{body: good, signature: right[:strings.Index(right, "v1=")+5]}, "401 signature-invalid"},
		"an empty signature":         {call{body: good, signature: right[:strings.Index(right, "v1=")+3]}, "401 signature-invalid"},
		"a signature without time":   {call{body: good, signature: right[strings.Index(right, "v1="):]}, "401 signature-invalid"},
		"a signature that is no hex": {call{body: good, signature: right[:len(right)-1] + "g"}, "401 signature-invalid"},
		"more than a signature":      {call{body: good, signature: right + ",v1=00"}, "401 signature-invalid"},
		"forged, not JSON, too old":  {call{body: "{", signature: "t=1,v1=" + strings.Repeat("0", 64)}, "401 signature-invalid"},
		"forged as text":             {call{body: good, signature: "t=1,v1=" + strings.Repeat("0", 64), contentType: "text/plain"}, "401 signature-invalid"},
		"a token instead":            {call{body: good, who: "staff-1"}, "401 signature-invalid"},
		"too old":                    {shifted(-window - 2*time.Second), "401 signature-expired"},
		"too new":                    {shifted(window + 2*time.Second), "401 signature-expired"},
		"far too new":                {call{body: good, signature: fmt.Sprintf("t=999999999999,v1=%x", sign(secret, "999999999999", []byte(good)))}, "401 signature-expired"},
		"not JSON":                   {signed("{"), "400 bad-request"},
		"nothing":                    {signed(""), "400 bad-request"},
		"a list":                     {signed("[]"), "400 bad-request"},
		"an unknown member":          {signed(edit(`{`, `{"more":1,`)), "400 bad-request"},
		"without event id":           {signed(edit(`"e1"`, `""`)), "400 bad-request"},
		"without payment":            {signed(edit(`"pay_1"`, `""`)), "400 bad-request"},
		"a zero byte":                {signed(edit(`pay_1`, `pay\u0000`)), "400 bad-request"},
		"no amount":                  {signed(edit(`4500`, `0`)), "400 bad-request"},
		"a negative amount":          {signed(edit(`4500`, `-1`)), "400 bad-request"},
		"a broken amount":            {signed(edit(`4500`, `45.5`)), "400 bad-request"},
		"no currency":                {signed(edit(`EUR`, ``)), "400 bad-request"},
		"another type":               {signed(edit(`payment.captured`, `payment.created`)), "422 unknown-event"},
		"an intent that is none":     {signed(edit(hold, "order-7")), "404 unknown-payment"},
		"an intent that is unknown":  {signed(edit(hold, "00000000-0000-0000-0000-000000000001")), "404 unknown-payment"},
		"a refund of nothing":        {signed(edit("captured", "refunded")), "404 unknown-payment"},
		"text":                       {call{body: good, signature: right, contentType: "text/plain"}, "415 unsupported-media-type"},
		"a megabyte":                 {signed(edit("EUR", strings.Repeat("E", 1<<20))), "413 too-large"},
	} {
		if a := s.send("POST", "/tickets/provider-callbacks", c.call); a.kind() != c.want {
			t.Errorf("%s: %d %s, want %s", what, a.status, a.body, c.want)
		}
	}
	if after := s.rows(); after != before {
		t.Errorf("bad callbacks changed something:\n%s\n%s", before, after)
	}
	wants(t, s.send("POST", "/tickets/provider-callbacks", shifted(-window+5*time.Second)), "200") // after all that it is still taken
	s.is(hold, "CONFIRMED SOLD CAPTURED")
}

// A body that ends early, as when the connection does.
func TestCallbackThatBreaksOff(t *testing.T) {
	s := newShop(t, 1)
	hold, charge := s.inFlight("member-1", "A-1")
	body := event("e1", eventCaptured, "pay_1", charge, hold, 4500)
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	before := s.rows()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(conn, "POST /tickets/provider-callbacks HTTP/1.1\r\nHost: x\r\nPayments-Signature: %s\r\nContent-Length: %d\r\n\r\n%s",
		s.signature(body, 0), len(body), body[:len(body)-1])
	_ = conn.(*net.TCPConn).CloseWrite()
	got := make([]byte, 1<<10)
	_ = conn.SetReadDeadline(s.clock.Now().Add(-s.clock.Offset()).Add(20 * time.Second))
	n, _ := conn.Read(got)
	_ = conn.Close()
	if !bytes.Contains(got[:n], []byte(" 400 ")) {
		t.Errorf("answer %q, want 400", got[:n])
	}
	if after := s.rows(); after != before {
		t.Errorf("it changed something:\n%s\n%s", before, after)
	}
}
