package history

import (
	"net/http"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// access is an operation on one key, the input of porcupine's model.
type access struct {
	verb   verb
	expect string // the value that update and remove replace
	value  string // the value written
}

// outcome is the answer to an access: the code and the value ("" if there is
// none).
type outcome struct {
	code  int
	value string
}

// register is the model of one key. Its state is the value, or "" if the key does
// not exist.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(string), input.(access), output.(outcome)
		done := out.code == http.StatusOK || out.code == http.StatusCreated
		switch in.verb {
		case create:
			if done {
				return now == "", in.value
			}
			return now != "", now // 409
		case update, remove:
			switch {
			case done && in.verb == remove:
				return now == in.expect && now != "", ""
			case done:
				return now == in.expect && now != "", in.value
			case out.code == http.StatusNotFound:
				return now == "", now
			}
			return now != "" && now != in.expect, now // 409
		}
		return out.value == now, now
	},
}

// checkTimeout limits the check of one key. Its time grows exponentially with the
// operations that overlap, so that a longer one seldom helps.
const checkTimeout = 2 * time.Minute

// checkLinearizable checks each key separately. A list is a read of each key. A
// write without an answer is omitted if etcd does not have it. Otherwise it may
// have been made at any time after it was sent.
func (h etcdHistory) checkLinearizable(t *testing.T, ops []operation, keys int) {
	byKey := map[string][]porcupine.Operation{}
	add := func(op operation, key string, in access, out outcome) {
		byKey[key] = append(byKey[key], porcupine.Operation{
			ClientId: op.client, Input: in, Output: out, Call: int64(op.start), Return: int64(op.stop),
		})
	}
	deletions := h.deletions(ops)
	for _, op := range ops {
		switch {
		case op.verb == list && op.code == http.StatusOK:
			for n := range keys {
				add(op, key(n), access{verb: get}, outcome{op.code, op.found[key(n)].value})
			}
		case op.verb == get && (op.code == http.StatusOK || op.code == http.StatusNotFound):
			add(op, op.key, access{verb: get}, outcome{op.code, op.found[op.key].value})
		case op.verb == list || op.verb == get:
		case op.code == unknown:
			_, happened := h.writes[op.value]
			if op.verb == remove {
				if happened = deletions[op.expect.value]; happened {
					deletions[op.expect.value] = false
				}
			}
			if happened {
				op.stop = 1 << 62
				add(op, op.key, access{op.verb, op.expect.value, op.value}, outcome{code: http.StatusOK})
			}
		default:
			add(op, op.key, access{op.verb, op.expect.value, op.value}, outcome{code: op.code})
		}
	}
	checked := 0
	for key, history := range byKey {
		switch porcupine.CheckOperationsTimeout(register, history, checkTimeout) {
		case porcupine.Illegal:
			t.Errorf("%s: its %d operations are not linearizable", key, len(history))
		case porcupine.Ok:
			checked++
		case porcupine.Unknown:
			t.Logf("%s: checking %d operations takes more than %v", key, len(history), checkTimeout)
		}
	}
	if checked == 0 && !t.Failed() {
		t.Errorf("none of %d keys could be checked", len(byKey))
	}
}

// deletions returns the values that were deleted without an acknowledgement.
func (h etcdHistory) deletions(ops []operation) map[string]bool {
	open := map[string]bool{}
	for _, e := range h.events {
		if e.verb == "DELETED" {
			open[e.value] = true
		}
	}
	for _, op := range ops {
		if op.verb == remove && op.code == http.StatusOK {
			delete(open, op.expect.value)
		}
	}
	return open
}
