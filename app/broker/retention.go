package broker

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Retention says which closed runs of a namespace are older than it keeps them.
func (b *Broker) Retention(ctx context.Context, ns string) (protocol.RetentionStatus, error) {
	v, err := b.Namespace(ctx, namespace(ns))
	if err != nil {
		return protocol.RetentionStatus{}, err
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return protocol.RetentionStatus{}, err
	}
	cutoff := now.Add(-time.Duration(v.RetentionDays) * 24 * time.Hour)
	s := protocol.RetentionStatus{
		Namespace: v.Name, RetentionDays: v.RetentionDays, Cutoff: history.At(cutoff), RunIDs: []string{}, ScanLimit: piece,
	}
	err = b.store.View(ctx, func(r store.Reader) error {
		heads, err := r.Outdated(ctx, v.Name, cutoff, piece)
		for _, h := range heads {
			s.RunIDs = append(s.RunIDs, h.ID)
		}
		return err
	})
	s.Count, s.Pressure = len(s.RunIDs), len(s.RunIDs) == piece
	return s, err
}

// RetentionPass removes them, a hundred a change with room for other work between; a run that is not there any more is skipped.
func (b *Broker) RetentionPass(ctx context.Context, ns string) (protocol.RetentionPass, error) {
	p := protocol.RetentionPass{Results: []protocol.RetentionResult{}}
	for {
		s, err := b.Retention(ctx, ns)
		if err != nil || s.Count == 0 {
			return p, err
		}
		gone, err := b.removeRuns(ctx, s.RunIDs)
		if err != nil {
			return p, err
		}
		for _, id := range s.RunIDs {
			outcome := "pruned"
			if !slices.Contains(gone, id) {
				outcome = "skipped"
				p.Skipped++
			}
			p.Results = append(p.Results, protocol.RetentionResult{RunID: id, Outcome: outcome})
		}
		p.Processed += s.Count
		p.Pruned += len(gone)
		if len(gone) == 0 || !s.Pressure {
			return p, nil
		}
		runtime.Gosched()
	}
}

// Prune removes from every namespace what is past its retention, and returns how long it is until something else will be: zero when nothing that has
// closed is kept.
func (b *Broker) Prune(ctx context.Context) (next time.Duration, err error) {
	all, err := b.Namespaces(ctx, func(string) bool { return true })
	if err != nil {
		return 0, err
	}
	for _, v := range all {
		p, err := b.RetentionPass(ctx, v.Name)
		if p.Pruned > 0 {
			b.log.Info().Str("namespace", v.Name).Int("runs", p.Pruned).Msg("runs past their retention removed")
		}
		if err != nil {
			return 0, err
		}
		now, err := b.store.Now(ctx)
		if err != nil {
			return 0, err
		}
		var first time.Time
		if err := b.store.View(ctx, func(r store.Reader) (err error) {
			first, err = r.FirstClosed(ctx, v.Name)
			return err
		}); err != nil {
			return 0, err
		}
		if first.IsZero() {
			continue
		}
		wait := max(first.Add(time.Duration(v.RetentionDays)*24*time.Hour).Sub(now), time.Second)
		if next == 0 || wait < next {
			next = wait
		}
	}
	return next, nil
}
