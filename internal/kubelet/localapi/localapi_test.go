package localapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	_ "github.com/coracle-io/coracle/internal/bubble"
)

// A client that asks too often is told to slow down, and served again later.
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		s := &Service{Count: func(string, error) { served++ }}
		unary := s.unary()
		ask := func() error {
			_, err := unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/v1.PodResourcesLister/List"}, func(context.Context, any) (any, error) { return nil, nil })
			return err
		}
		for i := range burst {
			if err := ask(); err != nil {
				t.Fatalf("request %d of a burst: %v", i, err)
			}
		}
		if err := ask(); status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != "rejected by rate limit" {
			t.Errorf("beyond the burst: %v", err)
		}
		time.Sleep(2 * time.Second / perSecond)
		if err := ask(); err != nil || served != burst+1 {
			t.Errorf("later: %v, and %d requests were served, want %d", err, served, burst+1)
		}
	})
}
