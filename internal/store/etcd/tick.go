package etcd

import (
	"errors"
	"reflect"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
)

// setTick changes how often Raft ticks in a running server. etcd has no option
// for that, so the ticker is reached in the server's own fields; the error says
// that they have changed.
func setTick(s *etcdserver.EtcdServer, tick time.Duration) error {
	node := reflect.ValueOf(s).Elem().FieldByName("r")
	if !node.IsValid() || node.Kind() != reflect.Struct {
		return errNoTicker
	}
	ticker := node.FieldByName("ticker")
	if !ticker.IsValid() || ticker.Type() != reflect.TypeFor[*time.Ticker]() {
		return errNoTicker
	}
	(*time.Ticker)(ticker.UnsafePointer()).Reset(tick)
	return nil
}

var errNoTicker = errors.New("this version of etcd keeps its ticker elsewhere: setTick must follow")
