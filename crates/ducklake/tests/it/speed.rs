//! How many commits a second there are: `cargo test --release -p ducklake -- --ignored --nocapture`.

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use ducklake::{Change, DataFile};

use crate::lake::{Lake, rows};

#[tokio::test]
#[ignore = "measures"]
async fn commits_of_ten_files_in_a_second() {
    let mut lake = Lake::sqlite().await;
    let mut synced = File::create(lake.folder.path().join("synced")).unwrap();
    let begin = Instant::now();
    for _ in 0..200 {
        synced.write_all(&[0; 40_000]).unwrap();
        synced.sync_data().unwrap();
    }
    println!("{:.0} writes/s of 40 kB, each synchronised", 200.0 / begin.elapsed().as_secs_f64());
    let file = lake.write("a.parquet", &rows(0..100));
    for files in [0, 20_000] {
        let names = (0..files).map(|it| format!("{it}"));
        let many: Vec<_> = names.map(|path| DataFile { path, ..file.clone() }).collect();
        commit(&mut lake, &many).await;
        let begin = Instant::now();
        for number in 0..200 {
            let names = (0..10).map(|it| format!("{files}-{number}-{it}"));
            let ten: Vec<_> = names.map(|path| DataFile { path, ..file.clone() }).collect();
            commit(&mut lake, &ten).await;
        }
        let rate = 200.0 / begin.elapsed().as_secs_f64();
        println!(
            "{rate:.0} commits/s of 10 files, {} columns each, from {files} files on",
            file.numbers.columns.len()
        );
    }
}

async fn commit(lake: &mut Lake, add: &[DataFile]) {
    let at = lake.now();
    let mut transaction = ducklake::begin(&mut lake.connection).await.unwrap();
    let change = Change { add, end: &[], message: None };
    ducklake::commit(&mut transaction, &lake.table, &change, at).await.unwrap();
    transaction.commit().await.unwrap();
}
