package store_test

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/mem"
)

// TestChange checks that no change of concurrent writers is lost.
func TestChange(t *testing.T) {
	s := mem.New()
	increment := func(current store.KeyValue) ([]byte, error) {
		n := 0
		if current.Revision != 0 {
			var err error
			if n, err = strconv.Atoi(string(current.Value)); err != nil {
				return nil, err
			}
		}
		return strconv.AppendInt(nil, int64(n)+1, 10), nil
	}
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 50 {
				if err := store.Change(t.Context(), s, "/n", 0, increment); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	kv, err := s.Get(context.Background(), "/n")
	if err != nil || string(kv.Value) != "400" {
		t.Errorf("%s, %v", kv.Value, err)
	}
	if err := store.Change(t.Context(), s, "/n", 0, func(store.KeyValue) ([]byte, error) { return nil, nil }); err != nil {
		t.Error(err)
	}
	if same, err := s.Get(t.Context(), "/n"); err != nil || same.Revision != kv.Revision {
		t.Errorf("revision %d, %v", same.Revision, err)
	}
}
