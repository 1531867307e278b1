// Package seatlock keeps replicas from working on one seat at the same time,
// by a lock in Redis. It saves work and nothing else: it may be lost, expire
// or be unreachable at any moment, and whoever holds it has proved nothing.
//
// What must not happen here: a decision that would be wrong without the lock.
package seatlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/overbook/overbook/sut/clock"
)

const (
	callTimeout = 100 * time.Millisecond // of one exchange with Redis
	coolDown    = time.Second            // without Redis after it failed, so that each claim does not pay for it
	logEvery    = 10 * time.Second
)

// Config of a locker.
type Config struct {
	URL       string // redis://...; "" for no lock at all
	Prefix    string // of every key
	TTL       time.Duration
	Log       *slog.Logger
	OnTrouble func() // Redis failed, once per failure
}

// A Locker locks seats. Safe for concurrent use.
type Locker struct {
	cfg    Config
	client *redis.Client // nil without Redis
	sync   *redsync.Redsync

	mu      sync.Mutex
	trouble time.Duration // when Redis last failed, monotonic; 0 for never
	logged  time.Duration
}

// New gives a locker. Redis is not asked yet; it may well be down.
func New(cfg Config) (*Locker, error) {
	if cfg.URL == "" {
		return &Locker{cfg: cfg}, nil
	}
	opt, err := redis.ParseURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("read the Redis URL: %w", err)
	}
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = callTimeout, callTimeout, callTimeout
	opt.DialerRetries = 1
	silence()
	opt.MaxRetries, opt.ContextTimeoutEnabled, opt.DisableIdentity = -1, true, true
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(opt)
	return &Locker{cfg: cfg, client: client, sync: redsync.New(goredis.NewPool(client))}, nil
}

// Close drops the connections.
func (l *Locker) Close() {
	if l.client != nil {
		_ = l.client.Close() // nothing to do about it
	}
}

// Acquire tries once. taken: another replica is at work on the seat. When it
// is not taken, the caller goes on (with the lock, or without one because
// Redis gives none) and calls release afterwards, which never fails and is
// never nil.
func (l *Locker) Acquire(ctx context.Context, seat string) (release func(), taken bool) {
	if l.client == nil || l.cooling() {
		return func() {}, false
	}
	mutex := l.sync.NewMutex(l.cfg.Prefix+"library:seat:"+seat, redsync.WithTries(1), redsync.WithExpiry(l.cfg.TTL))
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := mutex.TryLockContext(asking)
	if held := (*redsync.ErrTaken)(nil); errors.As(err, &held) {
		return func() {}, true
	}
	if err != nil {
		l.failed(ctx, err)
		return func() {}, false
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		if _, err := mutex.UnlockContext(ctx); err != nil && !errors.Is(err, redsync.ErrLockAlreadyExpired) {
			if held := (*redsync.ErrTaken)(nil); !errors.As(err, &held) { // expired and taken by another
				l.failed(ctx, err)
			}
		}
	}, false
}

func (l *Locker) cooling() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble != 0 && clock.Mono()-l.trouble < coolDown
}

func (l *Locker) failed(ctx context.Context, err error) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return // we were told to stop
	}
	if l.cfg.OnTrouble != nil {
		l.cfg.OnTrouble()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := clock.Mono()
	l.trouble = now
	if l.logged == 0 || now-l.logged >= logEvery {
		l.logged = now
		l.cfg.Log.Warn("seat lock: Redis gives none, going on without", "error", err)
	}
}

// silence keeps the Redis client, whose logger is one for the process, from
// writing to standard error: its failures come back to us as errors.
var silence = sync.OnceFunc(func() { redis.SetLogger(silent{}) })

// silent is a logger that the Redis client may talk to.
type silent struct{}

// Printf drops the line.
func (silent) Printf(context.Context, string, ...any) {}
