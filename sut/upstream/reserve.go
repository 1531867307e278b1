package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// A Finding is what is known about a reservation after an attempt at it.
type Finding string

// The findings. Only Accepted and Taken say who has the seat.
const (
	Accepted Finding = "accepted"  // 201: the student has it
	Taken    Finding = "taken"     // 409 over the seat: somebody has it
	Rejected Finding = "rejected"  // 401, 403: the student's credential is no good; nothing was reserved
	Refused  Finding = "refused"   // another 4xx, or a 409 over something else: certainly nothing was reserved
	Faulted  Finding = "faulted"   // pyxis answered that it failed; it is done with the call, but what did it do?
	Unsent   Finding = "unsent"    // certainly not a byte of it left this process
	InFlight Finding = "in-flight" // no answer, or one from something in between: pyxis may be working on it still
)

// An Attempt is the outcome of one reserve call.
type Attempt struct {
	Finding Finding
	Charge  Charge // when Accepted
	Status  int    // 0 when there was no answer
	Err     error  // why, when there was no usable answer
}

// reconnects is how often a call that certainly did not leave, because a kept
// connection turned out to be dead, is begun on another connection.
const reconnects = 3

// Reserve asks for the seat once. guard is asked right before the first byte
// leaves; its error keeps the call from being made. The call ends with the
// context or the client's timeout.
func (c *Client) Reserve(ctx context.Context, who Caller, seat, reference string, guard func() error) Attempt {
	body, err := json.Marshal(map[string]string{"student": who.Student, "seat": seat, "reference": reference})
	if err != nil {
		return Attempt{Finding: Unsent, Err: fmt.Errorf("write the reserve call: %w", err)}
	}
	for try := 1; ; try++ {
		w := &watch{guard: guard}
		a, err := c.call(ctx, who, call{name: "reserve", method: http.MethodPost, path: "/reserve", body: body, watch: w})
		if err == nil {
			return judge(a, who.Student, seat)
		}
		begun, reused, refused := w.seal()
		switch {
		case begun:
			return Attempt{Finding: InFlight, Err: err}
		case refused != nil:
			return Attempt{Finding: Unsent, Err: refused}
		case reused && try < reconnects && ctx.Err() == nil:
			continue
		}
		return Attempt{Finding: Unsent, Err: err}
	}
}

// conflict tells a seat that somebody has from any other conflict, such as a
// student who has another seat already: that says nothing about this seat.
func conflict(a answer) Attempt {
	var why struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(a.body, &why); err == nil && why.Error != "" && why.Error != "seat_taken" {
		return Attempt{Finding: Refused, Status: a.status, Err: errors.New(why.Error)}
	}
	return Attempt{Finding: Taken, Status: a.status}
}

// judge reads an answer that came whole.
func judge(a answer, student, seat string) Attempt {
	switch {
	case a.status == http.StatusCreated || a.status == http.StatusOK:
		var charge Charge
		if err := json.Unmarshal(a.body, &charge); err != nil {
			return Attempt{Finding: Faulted, Status: a.status, Err: fmt.Errorf("accepted, but the answer is not JSON: %w", err)}
		}
		if charge.ID == "" || charge.Seat != seat || charge.Student != student {
			return Attempt{Finding: Faulted, Status: a.status, Err: fmt.Errorf("accepted, but for %q on %q", charge.Student, charge.Seat)}
		}
		return Attempt{Finding: Accepted, Charge: charge, Status: a.status}
	case a.status == http.StatusConflict:
		return conflict(a)
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		return Attempt{Finding: Rejected, Status: a.status}
	case a.status == http.StatusBadGateway || a.status == http.StatusGatewayTimeout:
		return Attempt{Finding: InFlight, Status: a.status, Err: errors.New("a gateway answered in place of pyxis")}
	case a.status >= 400 && a.status < 500:
		return Attempt{Finding: Refused, Status: a.status, Err: fmt.Errorf("status %d", a.status)}
	}
	return Attempt{Finding: Faulted, Status: a.status, Err: fmt.Errorf("status %d", a.status)}
}
