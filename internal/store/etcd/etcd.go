// Package etcd implements store.Store with etcd v3. etcd runs in this process
// (Embed), as a single member or as a member of a Raft cluster, or in an external
// cluster (Dial). Keys, values and revisions are etcd's own, so that etcdctl and
// backups of etcd work as with upstream.
//
//	Store ── Range, Txn ──► KV       (a function call if embedded, otherwise gRPC)
//	      ── Watch ───────► Watcher, with progress on request
//	      ── ttl ─────────► leases, each shared by many keys
package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-io/coracle/internal/store"
)

// Store implements store.Store on an etcd client.
type Store struct {
	kv      pb.KVClient
	client  *clientv3.Client
	leases  *leases
	watches watches
	// full is called when etcd refuses a write because its quota is exceeded.
	full func()
}

var _ store.Store = (*Store)(nil)

func newStore(kv pb.KVClient, client *clientv3.Client) *Store {
	return &Store{kv: kv, client: client, leases: newLeases(client), full: func() {}}
}

// answerTimeout limits a read or write of one key, so that callers with a distant
// deadline get an error when etcd does not answer.
const answerTimeout = 10 * time.Second

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.KeyValue, error) {
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer, err := s.kv.Range(bounded, &pb.RangeRequest{Key: []byte(key)})
	if err != nil {
		return store.KeyValue{}, s.translate(ctx, err)
	}
	if len(answer.Kvs) == 0 {
		return store.KeyValue{}, store.ErrNotFound
	}
	kv := answer.Kvs[0]
	return store.KeyValue{Key: key, Value: kv.Value, Revision: kv.ModRevision}, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string, opts store.ListOptions) (store.Page, error) {
	answer, err := s.kv.Range(ctx, &pb.RangeRequest{
		Key:      []byte(max(prefix, opts.From)),
		RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)),
		Limit:    int64(opts.Limit),
		Revision: opts.Revision,
	})
	if err != nil {
		return store.Page{}, s.translate(ctx, err)
	}
	page := store.Page{
		Items:    make([]store.KeyValue, len(answer.Kvs)),
		Revision: opts.Revision,
		More:     answer.More,
		Count:    answer.Count,
	}
	if page.Revision == 0 {
		page.Revision = answer.Header.Revision
	}
	for i, kv := range answer.Kvs {
		page.Items[i] = store.KeyValue{Key: string(kv.Key), Value: kv.Value, Revision: kv.ModRevision}
	}
	return page, nil
}

// Create implements store.Store.
func (s *Store) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (int64, error) {
	put, err := s.put(ctx, key, value, ttl)
	if err != nil {
		return 0, err
	}
	answer, err := s.commit(ctx, key, 0, put, nil)
	if err != nil {
		return 0, err
	}
	if !answer.Succeeded {
		return 0, store.ErrExists
	}
	return answer.Header.Revision, nil
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, key string, value []byte, revision int64, ttl time.Duration) (int64, error) {
	put, err := s.put(ctx, key, value, ttl)
	if err != nil {
		return 0, err
	}
	return s.commitAt(ctx, key, revision, put)
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string, revision int64) (int64, error) {
	return s.commitAt(ctx, key, revision, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)},
	}})
}

// commitAt commits op if key is at revision. Otherwise it returns
// store.ErrNotFound if the key does not exist, and store.ErrConflict if it does.
func (s *Store) commitAt(ctx context.Context, key string, revision int64, op *pb.RequestOp) (int64, error) {
	if revision == 0 {
		return 0, store.ErrConflict // for etcd, 0 means that the key does not exist
	}
	exists := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{
		RequestRange: &pb.RangeRequest{Key: []byte(key), KeysOnly: true},
	}}
	answer, err := s.commit(ctx, key, revision, op, exists)
	if err != nil {
		return 0, err
	}
	switch {
	case answer.Succeeded:
		return answer.Header.Revision, nil
	case len(answer.Responses[0].GetResponseRange().GetKvs()) == 0:
		return 0, store.ErrNotFound
	}
	return 0, store.ErrConflict
}

// commit runs a transaction: the operation then if the last write of key has the
// revision (0 means that key does not exist), and the operation otherwise if not.
// otherwise may be nil.
func (s *Store) commit(ctx context.Context, key string, revision int64, then, otherwise *pb.RequestOp) (*pb.TxnResponse, error) {
	txn := &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key:         []byte(key),
			Target:      pb.Compare_MOD,
			Result:      pb.Compare_EQUAL,
			TargetUnion: &pb.Compare_ModRevision{ModRevision: revision},
		}},
		Success: []*pb.RequestOp{then},
	}
	if otherwise != nil {
		txn.Failure = []*pb.RequestOp{otherwise}
	}
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer, err := s.kv.Txn(bounded, txn)
	if err != nil {
		return nil, s.translate(ctx, err)
	}
	return answer, nil
}

// put returns the operation that stores value. It gets a lease if ttl is above
// zero.
func (s *Store) put(ctx context.Context, key string, value []byte, ttl time.Duration) (*pb.RequestOp, error) {
	request := &pb.PutRequest{Key: []byte(key), Value: value}
	if ttl > 0 {
		bounded, cancel := context.WithTimeout(ctx, answerTimeout)
		lease, err := s.leases.get(bounded, ttl)
		cancel()
		if err != nil {
			return nil, s.translate(ctx, err)
		}
		request.Lease = int64(lease)
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: request}}, nil
}

// CurrentRevision implements store.Store.
func (s *Store) CurrentRevision(ctx context.Context) (int64, error) {
	answer, err := s.kv.Range(ctx, &pb.RangeRequest{Key: []byte{0}, CountOnly: true})
	if err != nil {
		return 0, s.translate(ctx, err)
	}
	s.watches.expect(answer.Header.Revision)
	return answer.Header.Revision, nil
}

// Compact implements store.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	if _, err := s.kv.Compact(ctx, &pb.CompactionRequest{Revision: revision}); err != nil {
		return s.translate(ctx, err)
	}
	return nil
}
