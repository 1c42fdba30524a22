package etcd

import (
	"errors"
	"reflect"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
)

// setTick changes the Raft tick of a running server. etcd has no option for it, so
// setTick sets a private field, and returns an error if etcd has changed it.
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

var errNoTicker = errors.New("this version of etcd has its ticker in another field: change setTick")
