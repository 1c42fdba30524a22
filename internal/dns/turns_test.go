package dns

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/miekg/dns"

	_ "github.com/coracle-io/coracle/internal/bubble"
)

// testServer answers for a zone without Services, in turns.
func testServer() *Server {
	return &Server{
		clients: testClients(), forward: newForwarder("/nonexistent", "", nil), turns: newTurns(),
		zone: &Zone{Domain: "cluster.local.", TTL: ttl, View: fakeView{}},
	}
}

// A client with very many queries under way gets no answers to further ones. Others do.
func TestQueriesOfAClientAreBounded(t *testing.T) {
	s := testServer()
	answered := func(client byte) bool {
		w := &writer{client: &net.UDPAddr{IP: net.IPv4(10, 244, 0, client), Port: 5353}}
		s.answer(t.Context(), w, new(dns.Msg).SetQuestion("cluster.local.", dns.TypeSOA))
		return w.reply != nil
	}
	flood := netip.MustParseAddr("10.244.0.1")
	var leave func()
	for range maxQueriesPerClient {
		if !answered(1) {
			t.Fatal("a client with few queries gets no answer")
		}
		_, left, ok := s.turns.enter(t.Context(), flood)
		if !ok {
			t.Fatal("a client with few queries has too many")
		}
		leave = left
	}
	if answered(1) || !answered(2) {
		t.Error("the client with many queries gets an answer, or another one gets none")
	}
	leave()
	if !answered(1) {
		t.Error("a client whose query has ended gets no answer")
	}
}

// Few answers are made at a time, and of one client fewer: those of others do not wait for
// them.
func TestAnswersAreMadeInTurns(t *testing.T) {
	one := netip.MustParseAddr("10.244.0.1")
	synctest.Test(t, func(t *testing.T) {
		s := newTurns()
		var ends []func()
		for range maxAnswersPerClient {
			end, ok := s.take(t.Context(), one)
			if !ok {
				t.Fatal("there is no turn")
			}
			ends = append(ends, end)
		}
		var made atomic.Int32
		for range 2 {
			go func() {
				end, ok := s.take(t.Context(), one)
				if !ok {
					t.Error("there is no turn")
					return
				}
				made.Add(1)
				end()
			}()
			synctest.Wait()
		}
		late, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan bool, 1)
		go func() {
			_, ok := s.take(late, one)
			gaveUp <- !ok
		}()
		synctest.Wait()
		if n := made.Load(); n != 0 {
			t.Errorf("%d answers are made beside the others of the client", n)
		}
		for i := range maxAnswers - maxAnswersPerClient {
			end, ok := s.take(t.Context(), netip.AddrFrom4([4]byte{10, 244, 1, byte(i)}))
			if !ok {
				t.Fatal("other clients have no turn")
			}
			ends = append(ends, end)
		}
		cancel()
		if !<-gaveUp {
			t.Error("a query that has ended has a turn")
		}
		for _, end := range ends {
			end()
		}
		synctest.Wait()
		if n := made.Load(); n != 2 || s.clients.Len() != 0 || len(s.answers) != 0 {
			t.Errorf("%d answers were made, and %d clients and %d answers are left", n, s.clients.Len(), len(s.answers))
		}
	})
}

// turnWriter notes how many turns are taken while an answer is written.
type turnWriter struct {
	*writer
	turns *turns
	taken int
}

func (w *turnWriter) Write(data []byte) (int, error) {
	w.taken = len(w.turns.answers)
	return w.writer.Write(data)
}

// Clients that do not read their answers keep no turn from others.
func TestAnswersAreWrittenOutOfTurn(t *testing.T) {
	s := testServer()
	w := &turnWriter{writer: &writer{client: &net.TCPAddr{IP: net.IPv4(10, 244, 0, 1), Port: 5353}}, turns: s.turns, taken: -1}
	s.answer(t.Context(), w, new(dns.Msg).SetQuestion("cluster.local.", dns.TypeSOA))
	if w.reply == nil || w.taken != 0 {
		t.Errorf("the answer is %v, and %d turns are taken while it is written", w.reply, w.taken)
	}
}
