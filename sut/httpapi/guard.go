package httpapi

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// A Role is what kind of caller somebody is. A principal's name begins with it.
type Role string

// The roles of all designs.
const (
	RoleStudent Role = "student"
	RoleMember  Role = "member"
	RoleStaff   Role = "staff"
)

// A Principal is who is calling.
type Principal struct {
	Name string // "member-7"
	Role Role
}

// token is the name, with the second from which it no longer counts, if any.
var token = regexp.MustCompile(`^(([a-z]+)-[A-Za-z0-9_-]{1,64})(?:\.([0-9]{1,12}))?$`)

// PrincipalOf says who sent the request, as of its only Authorization header:
// Bearer <role>-<name>, with .<unix seconds> behind it when it expires.
// Somebody of none of the roles is a stranger. The error is made of a [Problem].
func PrincipalOf(r *http.Request, now time.Time, roles ...Role) (Principal, error) {
	sent := r.Header.Values("Authorization")
	if len(sent) != 1 {
		return Principal{}, stranger(roles)
	}
	scheme, credential, _ := strings.Cut(sent[0], " ")
	parts := token.FindStringSubmatch(credential)
	if !strings.EqualFold(scheme, "Bearer") || parts == nil || !slices.Contains(roles, Role(parts[2])) {
		return Principal{}, stranger(roles)
	}
	if parts[3] != "" {
		second, err := strconv.ParseInt(parts[3], 10, 64)
		if err != nil || !now.Before(time.Unix(second, 0)) {
			return Principal{}, TokenExpired.Err()
		}
	}
	return Principal{Name: parts[1], Role: Role(parts[2])}, nil
}

func stranger(roles []Role) error {
	want := make([]string, len(roles))
	for i, role := range roles {
		want[i] = string(role) + "-<n>"
	}
	return Unauthorized.With("send one Authorization: Bearer " + strings.Join(want, " or ")).Err()
}

// A Call serves a call of a known caller. It gives what to answer, or an error
// made of a [Problem], or any other error for the guard's fallback.
type Call func(r *http.Request, who Principal) (Answer, error)

// A Guard checks who is calling before anything else happens.
type Guard struct {
	Roles    []Role // everybody else is a stranger
	Clock    *clock.Clock
	Fallback func(*http.Request, error) *Problem // for errors that are no problems; not nil
	Answered func(operation, kind string)        // counts every answer
}

// Admit serves a call for callers of the given roles. The operation's name is
// for counting.
func (g Guard) Admit(operation string, call Call, allowed ...Role) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := g.answer(r, call, allowed)
		g.Answered(operation, answer.Kind)
		answer.Send(w)
	})
}

func (g Guard) answer(r *http.Request, call Call, allowed []Role) Answer {
	who, err := PrincipalOf(r, g.Clock.Now(), g.Roles...)
	if err == nil && !slices.Contains(allowed, who.Role) {
		err = Forbidden.Err()
	}
	var answer Answer
	if err == nil {
		answer, err = call(r, who)
	}
	if err == nil {
		return answer
	}
	p, ok := ProblemOf(err)
	if !ok {
		p = g.Fallback(r, err)
	}
	return p.Answer()
}
