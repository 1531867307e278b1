package library

import (
	"sync"
)

// waiters holds the clients who wait for a terminal state in this process.
// It is bounded by the requests in flight: each waiter is one of them.
type waiters struct {
	mu       sync.Mutex
	byIntent map[string]map[*waiter]struct{}
	closed   chan struct{} // closed when nobody may wait any longer
}

// A waiter is one client's wait for one intent.
type waiter struct {
	all      *waiters
	intentID string
	seat     string      // "" until it is known
	answer   chan record // holds the one terminal record
}

func newWaiters() *waiters {
	return &waiters{byIntent: map[string]map[*waiter]struct{}{}, closed: make(chan struct{})}
}

// join begins to wait. Join first and look at the database afterwards: then
// no ending can fall in between.
func (ws *waiters) join(intentID, seat string) *waiter {
	w := &waiter{all: ws, intentID: intentID, seat: seat, answer: make(chan record, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byIntent[intentID] == nil {
		ws.byIntent[intentID] = map[*waiter]struct{}{}
	}
	ws.byIntent[intentID][w] = struct{}{}
	return w
}

// on says which seat the intent turned out to be about.
func (w *waiter) on(seat string) {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	w.seat = seat
}

// leave ends the wait.
func (w *waiter) leave() {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	delete(w.all.byIntent[w.intentID], w)
	if len(w.all.byIntent[w.intentID]) == 0 {
		delete(w.all.byIntent, w.intentID)
	}
}

// deliver hands terminal records to whoever waits for them.
func (ws *waiters) deliver(ended []record) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, r := range ended {
		if !terminal(r.State) {
			continue
		}
		for w := range ws.byIntent[r.IntentID] {
			select {
			case w.answer <- r:
			default: // has one already; terminal states don't change
			}
		}
	}
}

// intents gives the intents somebody waits for: those on one seat and those
// whose seat is not known yet, or all when seat is "".
func (ws *waiters) intents(seat string) []string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var ids []string
	for id, waiting := range ws.byIntent {
		for w := range waiting {
			if seat == "" || w.seat == "" || w.seat == seat {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}

// count is how many intents are waited for.
func (ws *waiters) count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.byIntent)
}

// dismiss tells everybody to wait no longer.
func (ws *waiters) dismiss() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	select {
	case <-ws.closed:
	default:
		close(ws.closed)
	}
}
