package arbiter

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"pmnbd/backend/remote"
)

// Standby begins what Join says while another initiator has the mirror.
const Standby = "standby: "

// Join implements remote.Arbiter. While etcd does not answer it asks again.
func (e *Etcd) Join(ctx context.Context, set, id [16]byte, waits func(why string)) (remote.Term, error) {
	t := newTerm(e, set, id)
	var over time.Time // when a lease that a former boot of this host left is over
	said := ""
	say := func(why string) {
		if why != said {
			said = why
			waits(why)
		}
	}
	for {
		other, err := t.begin(ctx, true)
		switch {
		case ctx.Err() != nil:
			t.revoke()
			return nil, context.Cause(ctx)
		case err != nil && final(err):
			t.revoke()
			return nil, err
		case err != nil:
			say(fmt.Sprintf("etcd does not answer: %v", err))
			if err := rest(ctx); err != nil {
				return nil, err
			}
		case other == nil:
			go t.keep()
			return t, nil
		case e.cfg.Standby:
			say(fmt.Sprintf("%s%v is active since %s", Standby, &other.holder, since(other.Since)))
			if err := t.await(ctx, other, time.Time{}); err != nil {
				return nil, err
			}
		case other.Initiator != uuid.UUID(id):
			return nil, fmt.Errorf("%v has the mirror since %s: stop it, or wait for its end with --standby", &other.holder, since(other.Since))
		case over.IsZero():
			over = time.Now().Add(e.cfg.Lease + asking)
			say(fmt.Sprintf("%v has this initiator's own id, and is of another boot or host: waiting for the end of its lease", &other.holder))
			fallthrough
		case time.Until(over) > 0:
			if err := t.await(ctx, other, over); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%v has the mirror since %s, with this initiator's own id: was the state directory copied, or does another host use the same --id? Give this host an empty --state-dir",
				&other.holder, since(other.Since))
		}
	}
}

func since(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// An occupant is what etcd says of an active key that is another initiator's.
type occupant struct {
	holder
	revision int64 // of etcd, when it was asked
	modified int64 // the key's revision
}

// begin asks for a lease, and for the active key with it. It returns who has that key, if another
// initiator does, and no lease then. own says that a key of the same initiator in this boot of the host may
// be taken: the process that had it is dead. A key of another boot may belong to another host, with a copy of the
// state directory.
func (t *term) begin(ctx context.Context, own bool) (other *occupant, err error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	sent := time.Now()
	granted, err := t.etcd.client.Grant(ctx, int64((t.etcd.cfg.Lease+time.Second-1)/time.Second))
	if err != nil {
		return nil, fmt.Errorf("ask etcd for a lease: %w", err)
	}
	t.lease = granted.ID
	me, err := json.Marshal(holder{uuid.UUID(t.id), t.etcd.boot, t.etcd.host, os.Getpid(), time.Now()})
	if err != nil {
		return nil, fmt.Errorf("encode who is active: %w", err)
	}
	free := int64(0) // the revision of a key that does not exist
	for {
		r, err := t.etcd.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(t.active), "=", free)).
			Then(clientv3.OpPut(t.active, string(me), clientv3.WithLease(t.lease))).
			Else(clientv3.OpGet(t.active)).Commit()
		if err != nil {
			t.revoke()
			return nil, fmt.Errorf("ask etcd for the mirror: %w", err)
		}
		if r.Succeeded {
			t.began(r.Header.Revision, sent, time.Duration(granted.TTL)*time.Second)
			return nil, nil
		}
		kvs := r.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 { // it has just ended
			free = 0
			continue
		}
		found := &occupant{decodeHolder(kvs[0].Value), r.Header.Revision, kvs[0].ModRevision}
		if !own || found.Initiator != uuid.UUID(t.id) || found.Boot != t.etcd.boot {
			t.revoke()
			return found, nil
		}
		free = found.modified
	}
}

// await waits until the active key changes hands, or until over unless that is zero. An error means that ctx
// has ended.
func (t *term) await(ctx context.Context, other *occupant, over time.Time) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	if !over.IsZero() {
		defer time.AfterFunc(time.Until(over), cancel).Stop()
	}
	// Without a leader etcd could not say that a lease has ended.
	events := t.etcd.client.Watch(clientv3.WithRequireLeader(watching), t.active, clientv3.WithRev(other.revision+1))
	for r := range events {
		if r.Err() != nil || len(r.Events) > 0 {
			break
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
