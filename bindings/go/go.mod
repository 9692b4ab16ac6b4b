module github.com/libkclient/libkclient/bindings/go

go 1.23
