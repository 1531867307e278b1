package calendar

import (
	"fmt"
	"maps"
	"slices"
)

// A moment is an external event that waits for a call.
type moment struct {
	kind        string
	left        int  // calls that it still waits for, this one included
	overlapping bool // counts only calls whose range overlaps the event's
	made        bool // of AfterLook: an event was made since
	external    External
}

func newMoment(a At) moment {
	return moment{a.Moment, max(a.Nth, 1), a.Overlapping, false, a.external()}
}

// counts says whether a call is of those that the moment waits for, but for its kind.
func (m *moment) counts(q request) bool {
	return !m.overlapping || m.external.Start.Before(q.end) && m.external.End.After(q.start)
}

// moment has the external events appear whose moment a call is. p.mu is held.
func (p *provider) moment(b *book, kind string, q request) {
	queue := b.queue
	b.queue = nil
	for _, m := range queue {
		switch {
		case !m.counts(q):
		case m.kind == AfterLook && kind == AfterCreate:
			m.made = true
		case m.kind == kind && (kind != AfterLook || m.made):
			m.left--
		}
		if m.left > 0 {
			b.queue = append(b.queue, m)
			continue
		}
		if err := p.appear(m.external, kind); err != nil {
			p.note(Call{Calendar: b.name, Call: Appear, EventID: m.external.EventID, Start: m.external.Start, End: m.external.End, Source: TheOther, Outcome: "not_done", Moment: kind})
		}
	}
}

// appear does an external event. p.mu is held.
func (p *provider) appear(e External, at string) error {
	b := p.book(e.Calendar)
	old, stands := b.events[e.EventID]
	if stands && old.Source == Ours {
		return fmt.Errorf("external: %s in %s is an event of ours; take another event_id, or lose it", e.EventID, e.Calendar)
	}
	row := Call{Calendar: b.name, Call: Appear, EventID: e.EventID, Start: e.Start.UTC(), End: e.End.UTC(), Source: TheOther, Outcome: "appeared", Moment: at}
	switch {
	case e.Remove && !stands:
		return fmt.Errorf("external: there is no event %s in %s to remove; look at the ledger first", e.EventID, e.Calendar)
	case e.Remove:
		row.Start, row.End, row.Outcome = old.Start, old.End, "removed"
		delete(b.events, e.EventID)
	default:
		if stands {
			row.Outcome = "moved"
		}
		b.events[e.EventID] = Event{b.name, e.EventID, row.Start, row.End, 0, "", TheOther}
	}
	p.note(row)
	return nil
}

// orphan has an event of ours stand that no call made. p.mu is held.
func (p *provider) orphan(e External) error {
	b := p.book(e.Calendar)
	if _, stands := b.events[e.EventID]; stands || b.spent[e.EventID] {
		return fmt.Errorf("orphans: %s in %s stands already or is spent; take another event_id", e.EventID, e.Calendar)
	}
	row := Call{Calendar: b.name, Call: Orphan, EventID: e.EventID, Start: e.Start.UTC(), End: e.End.UTC(), Version: 1, Source: Ours, Outcome: "appeared"}
	b.events[e.EventID] = Event{b.name, e.EventID, row.Start, row.End, row.Version, "", Ours}
	p.note(row)
	return nil
}

// lose has somebody else remove one of ours. p.mu is held.
func (p *provider) lose(l Lost) error {
	b := p.book(l.Calendar)
	e, stands := b.events[l.EventID]
	if !stands || e.Source != Ours {
		return fmt.Errorf("lose: there is no event %s of ours in %s; look at the ledger first", l.EventID, l.Calendar)
	}
	delete(b.events, l.EventID)
	p.note(Call{Calendar: b.name, Call: Lose, EventID: e.EventID, Start: e.Start, End: e.End, Version: e.Version, Source: Ours, Outcome: "lost"})
	return nil
}

// change does all of a valid change, or nothing. p.mu is held.
func (p *provider) change(c Config) error {
	set, books, rows := p.set, p.books, len(p.rows)
	p.set, p.books = set.with(c, p.wall()), make(map[string]*book, len(books))
	for name, b := range books {
		p.books[name] = b.clone()
	}
	p.begin(c)
	if err := p.once(c); err != nil {
		p.set, p.books, p.rows = set, books, p.rows[:rows]
		return err
	}
	if c.SilenceMS != nil {
		close(p.loud)
		p.loud = make(chan struct{})
	}
	for name := range p.holds {
		if !p.set.of(name).HoldCreates || slices.Contains(c.Release, name) || slices.Contains(c.Release, All) {
			p.letGo(name)
		}
	}
	return nil
}

// begin has the behaviours that were sent start anew. p.mu is held.
func (p *provider) begin(c Config) {
	for name := range c.Calendars {
		b := p.books[name]
		if b == nil {
			b = newBook(name)
			p.books[name] = b
		}
		b.begin(p.set.of(name), p.wall())
	}
	if c.Default == nil {
		return
	}
	for name, b := range p.books {
		if _, own := p.set.calendars[name]; !own {
			b.begin(p.set.standard, p.wall())
		}
	}
}

// once does the part of a change that is done once, but for Release. p.mu is held.
func (p *provider) once(c Config) error {
	for _, e := range c.External {
		if err := p.appear(e, ""); err != nil {
			return err
		}
	}
	for _, e := range c.Orphans {
		if err := p.orphan(e); err != nil {
			return err
		}
	}
	for _, l := range c.Lose {
		if err := p.lose(l); err != nil {
			return err
		}
	}
	for _, b := range p.named(c.ExpireTokens) {
		b.tokens.expire()
		p.note(Call{Calendar: b.name, Call: Expire, Outcome: "ended"})
	}
	for _, b := range p.named(c.Revoke) {
		b.tokens.revoke()
		p.note(Call{Calendar: b.name, Call: Revoke, Outcome: "ended"})
	}
	for _, g := range c.Grant {
		p.book(g.Calendar).tokens.grant(g.RefreshToken)
		p.note(Call{Calendar: g.Calendar, Call: Granted, Outcome: "granted"})
	}
	for _, a := range c.At {
		b := p.book(a.Calendar)
		b.queue = append(b.queue, newMoment(a))
	}
	return nil
}

// named gives the books that a command names, each once for each name.
func (p *provider) named(names []string) (books []*book) {
	for _, name := range names {
		if name != All {
			books = append(books, p.book(name))
			continue
		}
		for _, one := range slices.Sorted(maps.Keys(p.books)) {
			books = append(books, p.books[one])
		}
	}
	return books
}
