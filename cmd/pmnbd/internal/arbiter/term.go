package arbiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"pmnbd/persist"
)

// A term implements remote.Term. One goroutine keeps its lease.
type term struct {
	etcd           *Etcd // set once, as all up to ended
	id             [16]byte
	active, record string
	life           context.Context
	stop           context.CancelFunc
	kept           chan struct{} // closed once the goroutine has ended
	ended          sync.Once

	lease clientv3.LeaseID // of Join, then of the goroutine, at last of End; 0: none

	mu       sync.Mutex
	revision int64         // of the active key when this term got it
	ttl      time.Duration // what etcd granted
	until    time.Time
	gained   uint64 // how often this term got the active key
}

func newTerm(e *Etcd, set, id [16]byte) *term {
	t := &term{etcd: e, id: id, active: e.key(set, "active"), record: e.key(set, "record"), kept: make(chan struct{})}
	t.life, t.stop = context.WithCancel(context.Background())
	return t
}

// began notes that the active key is this term's. sent is when its lease was asked for.
func (t *term) began(revision int64, sent time.Time, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revision, t.ttl = revision, ttl
	t.until = sent.Add(ttl - ttl/10)
	t.gained++
}

// Until implements remote.Term. etcd counts from when it gets what keeps the lease alive, and this end
// from when it was about to send that. A tenth is for clocks that do not run alike.
func (t *term) Until() (until time.Time, gained uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until, t.gained
}

// keep keeps the lease alive. If it has ended because etcd heard nothing for too long, keep asks for the
// mirror again. Somebody else may have had it meanwhile: the device learns from gained that it has to look.
func (t *term) keep() {
	defer close(t.kept)
	for {
		t.mu.Lock()
		ttl := t.ttl
		t.mu.Unlock()
		timer := time.NewTimer(ttl / 4)
		select {
		case <-timer.C:
		case <-t.life.Done():
			timer.Stop()
			return
		}
		if t.lease == 0 {
			_, _ = t.begin(t.life, false) // nobody waits for it: Until says how it went
			continue
		}
		sent := time.Now()
		ctx, cancel := context.WithTimeout(t.life, ttl/2)
		r, err := t.etcd.client.KeepAliveOnce(ctx, t.lease)
		cancel()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			t.lease = 0
			t.mu.Lock()
			t.until = sent // somebody may have ended it early
			t.mu.Unlock()
		case err == nil:
			t.mu.Lock()
			t.until = sent.Add(time.Duration(r.TTL)*time.Second - ttl/10)
			t.mu.Unlock()
		}
	}
}

// revoke ends the lease, if there is one. If etcd does not answer, the lease ends by itself.
func (t *term) revoke() {
	if t.lease == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	_, _ = t.etcd.client.Revoke(ctx, t.lease)
	t.lease = 0
}

// Held implements remote.Term.
func (t *term) Held(ctx context.Context) (persist.Record, error) {
	r, _, err := t.get(ctx)
	return r, err
}

// get returns the record, and its revision.
func (t *term) get(ctx context.Context) (r persist.Record, revision int64, err error) {
	g, err := t.etcd.client.Get(ctx, t.record)
	if err != nil {
		return r, 0, fmt.Errorf("read the mirror's record in etcd: %w", err)
	}
	return t.read(g.Kvs)
}

func (t *term) read(kvs []*mvccpb.KeyValue) (r persist.Record, revision int64, err error) {
	if len(kvs) == 0 {
		return r, 0, nil
	}
	if r, err = decodeRecord(kvs[0].Value); err != nil {
		return r, 0, fmt.Errorf("read %s: %w", t.record, err)
	}
	return r, kvs[0].ModRevision, nil
}

// Swap implements remote.Term.
func (t *term) Swap(ctx context.Context, old, next persist.Record) (held persist.Record, err error) {
	put := clientv3.OpDelete(t.record)
	if next != (persist.Record{}) {
		value, err := encodeRecord(&next)
		if err != nil {
			return held, err
		}
		put = clientv3.OpPut(t.record, string(value))
	}
	held, revision, err := t.get(ctx)
	if err != nil || held != old {
		return held, err
	}
	t.mu.Lock()
	active := t.revision
	t.mu.Unlock()
	r, err := t.etcd.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(t.record), "=", revision), clientv3.Compare(clientv3.ModRevision(t.active), "=", active)).
		Then(put).
		Else(clientv3.OpGet(t.record)).Commit()
	if err != nil {
		return held, fmt.Errorf("write the mirror's record in etcd: %w", err)
	}
	if r.Succeeded {
		return next, nil
	}
	held, _, err = t.read(r.Responses[0].GetResponseRange().Kvs)
	if err == nil && held == old {
		err = errors.New("the lease in etcd is over, and another initiator may have the mirror")
	}
	return held, err
}

// End implements remote.Term.
func (t *term) End(ctx context.Context, yields bool) (err error) {
	t.ended.Do(func() {
		t.stop()
		<-t.kept
		t.mu.Lock()
		t.until = time.Now()
		t.mu.Unlock()
		if yields && t.lease != 0 {
			_, err = t.etcd.client.Revoke(ctx, t.lease)
		}
	})
	return err
}
