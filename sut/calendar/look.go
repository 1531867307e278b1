package calendar

import "context"

// look reads the events of the appointment's time and gives those of others.
// After creating it is the only thing that shows what came between the check
// and the creation.
func (y *synchroniser) look(ctx context.Context, t task) ([]event, error) {
	all, err := y.provider.events(ctx, t.res, t.during(), t.by)
	if err != nil {
		return nil, err
	}
	return othersIn(t.during(), all), nil
}

// othersIn are the events of others that overlap a time.
func othersIn(during period, all []event) (others []event) {
	for _, e := range all {
		if e.Source != sourceOurs && e.overlaps(during) {
			others = append(others, e)
		}
	}
	return others
}
